"""One node's run from start to end: measure, do the rounds, measure again, save the model. What was kept of
a run before is where it begins.

`waggle up` and every node of `waggle demo` go through here. What happens is told to the journal.
"""

from collections.abc import Callable
from pathlib import Path

from waggledance import __version__
from waggledance.cli.assemble import Assembled, Place, assemble
from waggledance.cli.guarding import LedgerFile
from waggledance.cli.keeping import Keeping
from waggledance.cli.snapshot import Snapshots
from waggledance.cli.usage import usage
from waggledance.config import NodeConfig
from waggledance.errors import DivergedError, WaggleError
from waggledance.evaluate import evaluate
from waggledance.events import Evaluated, Failed, Finished, Saved, Started
from waggledance.journal import Journal, JournalReader
from waggledance.seams import Swarm
from waggledance.seed import derive

JOURNAL, MODEL, SETTINGS = "journal.jsonl", "model", "settings.toml"
"""What a run's folder holds."""
DONE, STOPPED = "rounds done", "stopped"
"""Why a run ended well."""


class Run:
    """One node's run, on one thread; another may leave in its middle."""

    def __init__(
        self, config: NodeConfig, place: Place, journal: Journal, stopping: Callable[[], bool]
    ) -> None:
        self._config = config
        self._place = place
        self._journal = journal
        self._stopping = stopping
        self._swarm: Swarm | None = None
        self.started = False

    def train(self) -> None:
        """Does the rounds until they are done or `stopping` says so; in both cases the model is saved."""
        try:
            parts = assemble(self._config, self._place, self._journal)
            self._swarm = parts.swarm
            try:
                self._work(parts)
            finally:
                parts.verifier.close()
                parts.swarm.close()
        except WaggleError as error:
            self._journal.tell(Failed(str(error), error.exit_code))
            raise

    def leave(self) -> None:
        """While a round that takes long is still being done: every round before it is kept."""
        self._journal.tell(Finished(STOPPED))
        if self._swarm is not None:
            self._swarm.close()

    def _work(self, parts: Assembled) -> None:
        keeping = Keeping(self._config, parts, self._place.folder, self._journal)
        snapshots = Snapshots(self._place.folder, parts.swarm_name, parts.swarm)
        ledger = LedgerFile(self._place.folder, parts.node.ledger)
        try:
            self._journal.tell(_started(self._config, parts))
            self.started = True
            keeping.begin()
            try:
                self._do_rounds(parts, keeping, snapshots, ledger)
            except DivergedError:  # the weights are still those of the last sound step
                ledger.write(at_once=True)
                _save(parts, self._place.folder, self._journal)
                raise
            ledger.write(at_once=True)
            _save(parts, self._place.folder, self._journal)
            keeping.end()
        finally:
            keeping.close()
        done = parts.node.round_number >= self._config.rounds
        self._journal.tell(Finished(DONE if done else STOPPED))

    def _do_rounds(
        self, parts: Assembled, keeping: Keeping, snapshots: Snapshots, ledger: LedgerFile
    ) -> None:
        config, node = self._config, parts.node
        measured = _measured(self._place.folder / JOURNAL) if node.round_number else None
        snapshots.write()
        if node.round_number == 0 and not self._stopping():
            _measure(config, parts, self._journal)
            measured = 0
        while node.round_number < config.rounds and not self._stopping():
            node.round()
            keeping.round_done()
            ledger.write()
            self._journal.tell(usage())
            snapshots.write()
            every = config.evaluate.every_rounds
            if every and node.round_number % every == 0 and node.round_number < config.rounds:
                _measure(config, parts, self._journal)
        if measured != node.round_number and not self._stopping():
            _measure(config, parts, self._journal)


def train(config: NodeConfig, place: Place, journal: Journal, stopping: Callable[[], bool]) -> None:
    Run(config, place, journal, stopping).train()


def _measured(journal: Path) -> int | None:
    """The newest round after which a run before this one measured."""
    reader, rounds = JournalReader(journal), None
    try:
        for entry in reader.entries():
            if isinstance(entry.event, Evaluated):
                rounds = entry.round
    finally:
        reader.close()
    return rounds


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
        notice=_notice(parts),
    )


def _notice(parts: Assembled) -> str:
    if parts.model is None or not parts.model.objection:
        return ""
    return (
        f"{parts.model.name} computes every prompt once for each of its completions, the slow way: "
        f"{parts.model.objection}"
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
