"""The pool: foreign groups that may be trained on, waiting unverified.

Bounded in number and age, newest kept, each group in it once and handed out once. What falls out is counted.
It must not know tasks or rewards: a group is verified only when it is taken.
"""

import hashlib
import random
from collections.abc import Iterable

import msgspec

from waggledance.rollout import Group

REMEMBERED_PER_PLACE = 4
"""Groups that came lately and are remembered, so that none is trained on twice, for each that may wait."""


class _Contents(msgspec.Struct, frozen=True, array_like=True):
    waiting: tuple[tuple[int, Group], ...]
    known: tuple[tuple[int, int], ...]


class Pool:
    def __init__(self, *, limit_groups: int, max_age_rounds: int) -> None:
        self._limit_groups = limit_groups
        self._max_age_rounds = max_age_rounds
        self._waiting: dict[int, tuple[int, Group]] = {}
        """By mark, oldest arrival first: (the receiver's round at arrival, the group)."""
        self._known: dict[int, int] = {}
        """Marks of what is waiting or was taken lately, oldest arrival first, with that round."""
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, groups: Iterable[Group], now: int) -> None:
        """Take in what arrived in round `now`, then let the oldest go until the bounds hold."""
        for group in groups:
            mark = mark_of(group)
            if mark not in self._known:
                self._known[mark] = now
                self._waiting[mark] = (now, group)
        while self._waiting and self._too_much(now):
            self._waiting.pop(next(iter(self._waiting)))
            self.dropped += 1
        while self._known and self._too_long_known(now):
            self._known.pop(next(iter(self._known)))

    def take(self, draw: random.Random) -> Group | None:
        """One group, uniformly, which leaves the pool; None when it is empty."""
        if not self._waiting:
            return None
        marks = list(self._waiting)
        return self._waiting.pop(marks[draw.randrange(len(marks))])[1]

    @property
    def marks(self) -> tuple[int, ...]:
        """Of what is waiting, oldest arrival first."""
        return tuple(self._waiting)

    def keep_only(self, marks: Iterable[int]) -> None:
        """What is not among these has been taken since."""
        kept = set(marks)
        self._waiting = {mark: arrived for mark, arrived in self._waiting.items() if mark in kept}

    def kept(self) -> bytes:
        return msgspec.msgpack.encode(_Contents(tuple(self._waiting.values()), tuple(self._known.items())))

    def restore(self, kept: bytes) -> None:
        contents = msgspec.msgpack.decode(kept, type=_Contents)
        self._waiting = {mark_of(group): (arrived, group) for arrived, group in contents.waiting}
        self._known = dict(contents.known)

    def _too_much(self, now: int) -> bool:
        arrived, _ = self._waiting[next(iter(self._waiting))]
        return len(self._waiting) > self._limit_groups or now - arrived > self._max_age_rounds

    def _too_long_known(self, now: int) -> bool:
        arrived = self._known[next(iter(self._known))]
        too_many = len(self._known) > REMEMBERED_PER_PLACE * self._limit_groups
        return too_many or now - arrived > self._max_age_rounds


def mark_of(group: Group) -> int:
    """The same in every process, as Python's own hash is not."""
    return int.from_bytes(hashlib.blake2b(msgspec.msgpack.encode(group), digest_size=8).digest(), "big")
