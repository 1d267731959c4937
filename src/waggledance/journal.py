"""The journal: a node's events, one JSON line each, appended as they happen.

A line is written whole and flushed; a reader that meets a line without its end waits for the rest. A journal
can be replayed into any view.
"""

import contextlib
from collections.abc import Callable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

import msgspec

from waggledance.errors import MissingError, StorageError
from waggledance.events import Entry, Event
from waggledance.rollout import Author

Clock = Callable[[], float]


class Journal:
    """Where a node tells what happens. Without a path it keeps the entries in memory."""

    def __init__(self, node: Author, clock: Clock, path: Path | None = None) -> None:
        self.node = node
        self.round = 0
        self.entries: list[Entry] = []
        self._clock = clock
        self._encoder = msgspec.json.Encoder()
        self._file: BinaryIO | None = path.open("ab") if path else None

    def tell(self, event: Event) -> None:
        entry = Entry(at=self._clock(), node=self.node, round=self.round, event=event)
        if self._file is None:
            self.entries.append(entry)
            return
        try:
            self._file.write(self._encoder.encode(entry) + b"\n")
            self._file.flush()
        except OSError as error:
            raise StorageError(
                f"the journal {self._file.name} cannot grow: {error.strerror}; free some space"
            ) from error

    def close(self) -> None:
        if self._file is not None:
            # A line that found no room is tried once more here; that it failed has been told.
            with contextlib.suppress(OSError):
                self._file.close()


class JournalReader:
    """Reads a journal that may still be growing: each call of `entries` gives what is new."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BufferedReader | None = None
        self._rest = b""
        self._line = 0
        self._decoder = msgspec.json.Decoder(Entry)

    def entries(self) -> Iterator[Entry]:
        if self._file is None:
            try:
                self._file = self._path.open("rb")
            except FileNotFoundError:
                return
            except OSError as error:
                raise MissingError(f"cannot read {self._path}: {error.strerror}") from error
        lines = (self._rest + self._file.read()).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            self._line += 1
            try:
                entry = self._decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise MissingError(
                    f"{self._path} is no journal of this version: line {self._line}: {error}"
                ) from error
            yield entry

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
