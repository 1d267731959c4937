"""Journals that grow, folded into the states that views show."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from waggledance.journal import JournalReader
from waggledance.view.state import SwarmState, fold_all


class Watching:
    """Several swarms by label, each the journals of its nodes."""

    def __init__(self, journals: Mapping[str, Sequence[Path]]) -> None:
        self._readers = {label: [JournalReader(path) for path in paths] for label, paths in journals.items()}
        self.states: dict[str, SwarmState] = {label: SwarmState() for label in journals}

    def read(self) -> None:
        """Takes in whatever was written since the last call."""
        for label, readers in self._readers.items():
            for reader in readers:
                self.states[label] = fold_all(self.states[label], reader.entries())

    def close(self) -> None:
        for readers in self._readers.values():
            for reader in readers:
                reader.close()
