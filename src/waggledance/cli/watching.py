"""Journals folded into the states that views show: as they grow, or once more as they grew."""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from waggledance.cli.training import JOURNAL
from waggledance.errors import MissingError
from waggledance.events import Entry
from waggledance.journal import JournalReader
from waggledance.view.state import SwarmState, fold_all

Journals = Mapping[str, Sequence[Path]]
"""Label → the journals of a swarm's nodes, in the order they are compared: the one in question last."""


class Watching:
    """Several swarms by label, each the journals of its nodes."""

    def __init__(self, journals: Journals) -> None:
        self._readers: dict[Path, tuple[str, JournalReader]] = {}
        self.states: dict[str, SwarmState] = {}
        self.follow(journals)

    def follow(self, journals: Journals) -> None:
        """Nodes that were not there yet are watched from now on."""
        for label, paths in journals.items():
            self.states.setdefault(label, SwarmState())
            for path in paths:
                if path not in self._readers:
                    self._readers[path] = (label, JournalReader(path))

    def read(self) -> None:
        """Takes in whatever was written since the last call."""
        for label, reader in self._readers.values():
            self.states[label] = fold_all(self.states[label], reader.entries())

    def close(self) -> None:
        for _, reader in self._readers.values():
            reader.close()


class Replay:
    """The same of journals that are complete: each `read` tells what had happened by then."""

    def __init__(self, journals: Journals) -> None:
        self.states: dict[str, SwarmState] = {label: SwarmState() for label in journals}
        self._entries = heapq.merge(
            *(_labelled(label, path) for label, paths in journals.items() for path in paths),
            key=lambda told: told[1].at,
        )
        self._next = next(self._entries, None)
        self.started_at = self._next[1].at if self._next else 0.0

    @property
    def ended(self) -> bool:
        return self._next is None

    def read_until(self, at: float) -> None:
        """By the nodes' clocks, which are taken as they are: a replay of one machine's run."""
        due: dict[str, list[Entry]] = {}
        while self._next is not None and self._next[1].at <= at:
            label, entry = self._next
            due.setdefault(label, []).append(entry)
            self._next = next(self._entries, None)
        for label, entries in due.items():
            self.states[label] = fold_all(self.states[label], entries)


def journals_below(place: Path) -> dict[str, list[Path]]:
    """A journal's file; a run's folder; or a folder of runs, side by side where they lie in folders of their
    own (`silo/n0`, `swarm/n0`)."""
    if place.is_file():
        return {place.parent.name or "run": [place]}
    found = [*place.glob(JOURNAL), *place.glob(f"*/{JOURNAL}"), *place.glob(f"*/*/{JOURNAL}")]
    journals: dict[str, list[Path]] = {}
    for path in sorted(found, key=lambda path: (len(path.parent.name), path)):
        depth = len(path.relative_to(place).parts)
        label = path.parent.parent.name if depth == 3 else place.resolve().name
        journals.setdefault(label, []).append(path)
    # Alphabetical order puts silo before swarm.
    return dict(sorted(journals.items()))


def newest_run(runs: Path) -> Path:
    """The folder below `runs` in which something was told last."""
    told = [
        (max(path.stat().st_mtime for path in paths), folder)
        for folder in runs.glob("*/")
        if (paths := [path for found in journals_below(folder).values() for path in found])
    ]
    if not told:
        raise MissingError(f"no run below {runs}/; name a run's folder, or start one with `waggle up`")
    return max(told)[1]


def need_journals(place: Path) -> dict[str, list[Path]]:
    journals = journals_below(place)
    if not journals:
        raise MissingError(f"no journal in {place}; name a run's folder, or start one with `waggle up`")
    return journals


def _labelled(label: str, path: Path) -> Iterator[tuple[str, Entry]]:
    reader = JournalReader(path)
    try:
        for entry in reader.entries():
            yield label, entry
    finally:
        reader.close()
