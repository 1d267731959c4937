"""A learner that is brought back goes on number for number, whichever it is and whatever it moves."""

# pyright: standard

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from test_learner import RAGGED, SETTINGS, equal, weights_of
from test_model import toy
from test_ppo import SETTINGS as PPO_SETTINGS
from waggledance.adapter import adapt
from waggledance.learner.grpo import GRPO
from waggledance.learner.ppo import PPO
from waggledance.model import Model


def learner_on(model: Model, kind: str) -> GRPO | PPO:
    if kind == "ppo":
        return PPO(model, replace(PPO_SETTINGS, kl_weight=0.1, epochs=2))
    return GRPO(model, replace(SETTINGS, kl_weight=0.1, epochs=2, variant=kind))


def begun(folder: Path, *, adapter_seed: int | None) -> Model:
    model = toy(folder)
    if adapter_seed is not None:
        adapt(model, 2, 2.0, adapter_seed)
    return model


@pytest.mark.parametrize("kind", ["grpo", "gspo", "ppo"])
@pytest.mark.parametrize("adapted", [False, True], ids=["whole", "adapter"])
def test_a_learner_goes_on_number_for_number(tmp_path: Path, kind: str, adapted: bool) -> None:
    torch.set_num_threads(1)
    through = begun(tmp_path / "through", adapter_seed=1 if adapted else None)
    learner = learner_on(through, kind)
    for _ in range(2):
        learner.learn(RAGGED)
    kept = {name: tensor.clone() for name, tensor in learner.kept().items()}
    assert all(".lora_" in name or "value_head" in name for name in kept) == adapted
    expected = [learner.learn(RAGGED) for _ in range(2)]

    back = begun(tmp_path / "back", adapter_seed=2 if adapted else None)
    again = learner_on(back, kind)
    again.restore(kept)
    assert [again.learn(RAGGED) for _ in range(2)] == expected
    assert equal(weights_of(back), weights_of(through))
