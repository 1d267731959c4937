"""The replay window: which of an author's messages have been let in already.

Sequences only grow, but messages may overtake each other; so the highest is kept and, below it, which of the
last SPAN were seen. What is older is refused. The window is on disk before what it let in is used, so that a
node that is killed and starts again does not take an old message for a new one.
"""

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


class _Row(msgspec.Struct, frozen=True, array_like=True):
    highest: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    seen: bytes
    """Bit k: highest - k was seen."""


class Windows:
    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._rows: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._changed = False
        if path is not None:
            self._read(path)

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
        return True

    def save(self) -> None:
        """Beside its place and then renamed; a kill leaves the old or the new one. A full disk is told by
        whoever writes more than this: here it only means that the next call tries again."""
        if self._path is None or not self._changed:
            return
        rows = {
            name: _Row(highest, seen.to_bytes(SPAN // 8, "little"))
            for name, (highest, seen) in self._rows.items()
        }
        beside = self._path.with_name(f".{self._path.name}.new")
        with suppress(OSError):
            beside.write_bytes(msgspec.msgpack.encode(rows))
            os.replace(beside, self._path)
            self._changed = False

    def _read(self, path: Path) -> None:
        """What cannot be read was never written by `save`: it counts as nothing heard."""
        with suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
            rows = msgspec.msgpack.decode(path.read_bytes(), type=dict[str, _Row])
            for name, row in rows.items():
                self._rows[name] = (row.highest, int.from_bytes(row.seen, "little") & ((1 << SPAN) - 1))
