"""A growing journal, told round by round to the trackers that its settings name."""

from collections.abc import Generator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from waggledance.events import Evaluated, Learned
from waggledance.journal import JournalReader
from waggledance.view.state import NodeState, fold_node
from waggledance.view.track import Tracker, numbers, open_tracker


class Tracking:
    def __init__(self, journal: Path, trackers: Sequence[Tracker]) -> None:
        self._reader = JournalReader(journal)
        self._trackers = tuple(trackers)
        self._node: NodeState | None = None

    def read(self) -> None:
        """Tells every round that was learned from since the last call, none left out."""
        self._fold(self._trackers)

    def catch_up(self) -> None:
        """What an earlier process has told already is not told again."""
        self._fold(())

    def close(self) -> None:
        self._reader.close()

    def _fold(self, trackers: Sequence[Tracker]) -> None:
        if not self._trackers:
            return
        for entry in self._reader.entries():
            node = fold_node(self._node or NodeState(author=entry.node), entry)
            self._node = node
            if isinstance(entry.event, Learned | Evaluated):
                for tracker in trackers:
                    tracker.log(entry.round, numbers(node))


@contextmanager
def tracked(kinds: Sequence[str], journal: Path) -> Generator[Tracking]:
    """Into the journal's folder. The last rounds are told at the end."""
    with ExitStack() as stack:
        trackers = [stack.enter_context(closing(open_tracker(kind, journal.parent))) for kind in kinds]
        tracking = stack.enter_context(closing(Tracking(journal, trackers)))
        tracking.catch_up()
        try:
            yield tracking
        finally:
            tracking.read()
