"""One node's run from start to end: measure, do the rounds, measure again, save the model.

`waggle up` and every node of `waggle demo` go through here. What happens is told to the journal.
"""

from collections.abc import Callable
from pathlib import Path

from waggledance import __version__
from waggledance.cli.assemble import Assembled, Place, assemble
from waggledance.cli.snapshot import Snapshots
from waggledance.cli.usage import usage
from waggledance.config import NodeConfig
from waggledance.errors import WaggleError
from waggledance.evaluate import evaluate
from waggledance.events import Failed, Finished, Saved, Started
from waggledance.journal import Journal
from waggledance.seed import derive

JOURNAL, MODEL, SETTINGS = "journal.jsonl", "model", "settings.toml"
"""What a run's folder holds."""


def train(config: NodeConfig, place: Place, journal: Journal, stopping: Callable[[], bool]) -> None:
    """Does the rounds until they are done or `stopping` says so; in both cases the model is saved."""
    try:
        parts = assemble(config, place, journal)
        try:
            snapshots = Snapshots(place.folder, parts.swarm_name, parts.swarm)
            _do_rounds(config, parts, journal, snapshots, stopping)
            _save(parts, place.folder, journal)
            done = parts.node.round_number >= config.rounds
            journal.tell(Finished("rounds done" if done else "stopped"))
        finally:
            parts.verifier.close()
            parts.swarm.close()
    except WaggleError as error:
        journal.tell(Failed(str(error), error.exit_code))
        raise


def _do_rounds(
    config: NodeConfig,
    parts: Assembled,
    journal: Journal,
    snapshots: Snapshots,
    stopping: Callable[[], bool],
) -> None:
    journal.tell(_started(config, parts))
    snapshots.write()
    if not stopping():
        _measure(config, parts, journal)
    while parts.node.round_number < config.rounds and not stopping():
        parts.node.round()
        journal.tell(usage())
        snapshots.write()
        every = config.evaluate.every_rounds
        if every and parts.node.round_number % every == 0 and parts.node.round_number < config.rounds:
            _measure(config, parts, journal)
    if parts.node.round_number and not stopping():
        _measure(config, parts, journal)


def _started(config: NodeConfig, parts: Assembled) -> Started:
    return Started(
        model=config.policy.model if parts.model else config.policy.kind,
        weights=parts.model.weights if parts.model else 0,
        sources=tuple(source.name for source in parts.node.sources),
        mix=f"{config.mix.kind}({config.mix.own}, {config.mix.foreign})",
        rounds=config.rounds,
        completions=config.policy.completions,
        seed=config.seed,
        version=__version__,
    )


def _measure(config: NodeConfig, parts: Assembled, journal: Journal) -> None:
    wanted = config.evaluate
    if wanted.tasks:
        seed = derive(config.seed, config.name, "heldout")
        journal.tell(
            evaluate(
                parts.node.policy,
                parts.node.sources,
                parts.verifier,
                tasks=wanted.tasks,
                completions=wanted.completions,
                seed=seed,
            )
        )


def _save(parts: Assembled, folder: Path, journal: Journal) -> None:
    if parts.model is None:
        return
    from waggledance.checkpoint import save_model

    save_model(parts.model, folder / MODEL)
    journal.tell(Saved(str(folder / MODEL)))
