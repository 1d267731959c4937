"""A queue of letters that notes when each one was put in: at the moment of publishing on the way out, at the
moment of arrival on the way in.

It stands where a swarm's own queue stands and keeps its bounds. What it notes of a letter are eight bytes of
its nonce, which no two messages share, so nothing need be opened to follow one from node to node.
"""

from collections import deque
from collections.abc import Callable

from waggledance.swarm.key import GROUPS, address_in, kind_in
from waggledance.swarm.mailbox import Letter, Ring

MARK_BYTES = slice(1, 9)
"""After the version: the beginning of a sealed message's nonce."""


class Stamped:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._ring = Ring()
        self._clock = clock
        self.stamps: list[tuple[int, int, float]] = []
        """Of groups, in their order: (mark, address, time)."""
        self.gone = 0
        """Letters that had to go because the queue was full."""

    def put(self, letter: Letter) -> int:
        if kind_in(letter.key) == GROUPS:
            mark = int.from_bytes(letter.message[MARK_BYTES], "big") >> 1
            self.stamps.append((mark, address_in(letter.key) or 0, self._clock()))
        gone = self._ring.put(letter)
        self.gone += gone
        return gone

    @property
    def arrived(self) -> int:
        return self._ring.arrived

    def take(self) -> Letter | None:
        return self._ring.take()

    def take_all(self) -> deque[Letter]:
        return self._ring.take_all()
