"""The journal: a node's events, one JSON line each, appended as they happen.

A line is written whole; a reader that meets a line without its end waits for the rest. Where the disk is
full a journal raises, or waits for room with what it could not write, as it was told to. A journal can be
replayed into any view.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from io import BufferedReader, FileIO
from pathlib import Path

import msgspec

from waggledance.errors import MissingError, StorageError
from waggledance.events import Entry, Event
from waggledance.rollout import Author

Clock = Callable[[], float]


class Journal:
    """Where a node tells what happens. Without a path it keeps the entries in memory."""

    def __init__(self, node: Author, clock: Clock, path: Path | None = None, patience_bytes: int = 0) -> None:
        """`patience_bytes`: how much may wait for room on a full disk, the newest last, what is more being
        dropped; 0: a full disk is an error at once."""
        self.node = node
        self.round = 0
        self.entries: list[Entry] = []
        self.told = 0
        self.trouble: str | None = None
        """Why the newest lines are not on the disk yet."""
        self._clock = clock
        self._encoder = msgspec.json.Encoder()
        self._path = path
        self._patience_bytes = patience_bytes
        self._waiting = b""
        self._lock = threading.Lock()
        # Unbuffered: what found no room must wait where it can be counted.
        self._file: FileIO | None = path.open("ab", buffering=0) if path else None

    def tell(self, event: Event) -> None:
        """From any thread."""
        entry = Entry(at=self._clock(), node=self.node, round=self.round, event=event)
        with self._lock:
            self.told += 1
            if self._file is None:
                self.entries.append(entry)
            else:
                self._append(self._encoder.encode(entry) + b"\n")

    def _append(self, line: bytes) -> None:
        if not self._waiting or len(self._waiting) + len(line) <= self._patience_bytes:
            self._waiting += line
        try:
            self._write()
            self.trouble = None
        except OSError as error:
            self.trouble = f"the journal {self._path} cannot grow: {error.strerror}; free some space"
            if not self._patience_bytes:
                raise StorageError(self.trouble) from error

    def _write(self) -> None:
        assert self._file is not None
        while self._waiting:
            self._waiting = self._waiting[self._file.write(self._waiting) :]

    def close(self) -> None:
        if self._file is not None:
            # A line that found no room is tried once more here; that it failed has been told.
            with contextlib.suppress(OSError):
                self._write()
            self._file.close()


def mend(path: Path) -> None:
    """Cuts off a last line that was torn by a kill or a full disk, so that the next one stands by itself."""
    try:
        with path.open("r+b") as file:
            content = file.read()
            file.truncate(content.rfind(b"\n") + 1)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError(f"cannot mend {path}: {error.strerror}; name another folder with --dir") from error


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
