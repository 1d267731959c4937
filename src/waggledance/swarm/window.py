"""The replay window: which of an author's messages have been let in already.

Sequences only grow, but messages may overtake each other; so the highest is kept and, below it, which of the
last SPAN were seen. What is older is refused. The window is on disk before what it let in is used, so that a
node that is killed and starts again does not take an old message for a new one: whole in one file, and what
was let in since at the end of a second, which costs a thousandth of writing the first again.
"""

import errno
import os
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

SPAN = 1024
LIMIT_AUTHORS = 4096
"""The ones heard longest ago are forgotten first."""


ADDED_LIMIT_BYTES = 512 * 1024
"""When the second file has grown so large, the first is written anew."""
_LENGTH_BYTES = 2
_NOTHING_FITS = 0


class _Row(msgspec.Struct, frozen=True, array_like=True):
    highest: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    seen: bytes
    """Bit k: highest - k was seen."""


class _Admitted(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    fingerprint: str
    sequence: Annotated[int, Meta(ge=0, le=2**63 - 1)]


class Windows:
    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._rows: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._admitted: list[_Admitted] = []
        """Since the last save; nothing where the whole is to be written anyway."""
        self._room_bytes = _NOTHING_FITS
        """How much may still be added to the second file. Nothing before it was begun by this process: it may
        end in what a killed one had half written."""
        self._changed = False
        if path is not None:
            self._read(path)
            self._replay(_added(path))
            self._changed = False

    def admit(self, fingerprint: str, sequence: int) -> bool:
        """Whether the author's message of this number is new; from now on it is not."""
        highest, seen = self._rows.get(fingerprint, (-1, 0))
        if sequence > highest:
            ahead = sequence - highest
            seen = (seen << ahead | 1) & ((1 << SPAN) - 1) if ahead < SPAN else 1
            highest = sequence
        else:
            bit = 1 << (highest - sequence) if highest - sequence < SPAN else 0
            if not bit or seen & bit:
                return False
            seen |= bit
        self._rows[fingerprint] = (highest, seen)
        self._rows.move_to_end(fingerprint)
        if len(self._rows) > LIMIT_AUTHORS:
            self._rows.popitem(last=False)
        self._changed = True
        if self._room_bytes > 0:
            self._admitted.append(_Admitted(fingerprint, sequence))
        return True

    def save(self) -> None:
        """A kill leaves what was or what is. A full disk is told by whoever writes more than this: here it
        only means that the next call tries again."""
        if self._path is None or not self._changed:
            return
        with suppress(OSError):
            if self._room_bytes > 0:
                self._add(_added(self._path))
            else:
                self._write_whole(self._path)
            self._changed = False

    def _write_whole(self, path: Path) -> None:
        rows = {
            name: _Row(highest, seen.to_bytes(SPAN // 8, "little"))
            for name, (highest, seen) in self._rows.items()
        }
        beside = path.with_name(f".{path.name}.new")
        beside.write_bytes(msgspec.msgpack.encode(rows))
        os.replace(beside, path)
        # A kill between the two is harmless: what is let in twice changes nothing.
        _added(path).write_bytes(b"")
        self._room_bytes = ADDED_LIMIT_BYTES

    def _add(self, file: Path) -> None:
        records = b"".join(map(_record, self._admitted))
        self._admitted.clear()
        room_bytes, self._room_bytes = self._room_bytes, _NOTHING_FITS
        with file.open("ab", buffering=0) as end:
            if end.write(records) < len(records):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._room_bytes = room_bytes - len(records)

    def _read(self, path: Path) -> None:
        """What cannot be read was never written by `save`: it counts as nothing heard."""
        with suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
            rows = msgspec.msgpack.decode(path.read_bytes(), type=dict[str, _Row])
            for name, row in rows.items():
                self._rows[name] = (row.highest, int.from_bytes(row.seen, "little") & ((1 << SPAN) - 1))

    def _replay(self, file: Path) -> None:
        """As far as it is sound: the last record may be half there."""
        with suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
            records = memoryview(file.read_bytes())
            while records:
                end = _LENGTH_BYTES + int.from_bytes(records[:_LENGTH_BYTES], "big")
                admitted = msgspec.msgpack.decode(records[_LENGTH_BYTES:end], type=_Admitted)
                self.admit(admitted.fingerprint, admitted.sequence)
                records = records[end:]


def _added(path: Path) -> Path:
    return path.with_name(f"{path.name}.added")


def _record(admitted: _Admitted) -> bytes:
    content = msgspec.msgpack.encode(admitted)
    return len(content).to_bytes(_LENGTH_BYTES, "big") + content
