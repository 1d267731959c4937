"""What a run came to: its settings, and its model as the newest round that was kept left it."""

from pathlib import Path
from typing import TYPE_CHECKING

from waggledance.cli.assemble import thinking
from waggledance.cli.keeping import CHECKPOINTS
from waggledance.cli.training import JOURNAL, MODEL, SETTINGS
from waggledance.config import NodeConfig, read_config
from waggledance.errors import MissingError, ModelError
from waggledance.lasting import Checkpoints

if TYPE_CHECKING:
    from waggledance.model import Model


def is_run(folder: Path) -> bool:
    return (folder / JOURNAL).is_file() and (folder / SETTINGS).is_file()


def settings_of(folder: Path) -> NodeConfig:
    if not is_run(folder):
        raise MissingError(f"{folder} is no run's folder: it has no {JOURNAL} and {SETTINGS}")
    return read_config(folder / SETTINGS)


def newest_model(folder: Path) -> tuple["Model", int | None]:
    """And the round after which it was so; None where only the model's folder tells."""
    config = settings_of(folder)
    if config.policy.kind != "hf":
        raise ModelError(f"{folder} is the run of a {config.policy.kind} policy, which has no model")
    found = Checkpoints(folder / CHECKPOINTS).find()
    if found is None or not found.tensors:
        return _saved_model(config, folder), None
    model, _, learner = thinking(config)
    assert model is not None
    learner.restore(found.tensors)
    for record in found.records:
        learner.learn(record.batch)
    return model, found.round + len(found.records)


def _saved_model(config: NodeConfig, folder: Path) -> "Model":
    from waggledance.model import load_model

    if not (folder / MODEL).is_dir():
        raise MissingError(f"{folder} has no checkpoint and no {MODEL} yet; let it do a round first")
    policy = config.policy
    return load_model(str(folder / MODEL), device=policy.device, system_prompt=policy.system_prompt)
