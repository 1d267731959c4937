"""The pool: foreign groups that may be trained on, waiting unverified.

Bounded in number and age, newest kept, each group in it once and handed out once. What falls out is counted.
Where it is too full, those who fill it most go first, so that nobody can push the others out. It must not
know tasks or rewards: a group is verified only when it is taken.
"""

import hashlib
import random
from collections.abc import Iterable, Mapping

import msgspec

from waggledance.rollout import Author, Group

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
        self._marks_of: dict[Author, dict[int, None]] = {}
        """What is waiting of whom, oldest arrival first."""
        self._known: dict[int, int] = {}
        """Marks of what is waiting or was taken lately, oldest arrival first, with that round."""
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def authors(self) -> tuple[Author, ...]:
        """Of what is waiting."""
        return tuple(self._marks_of)

    def add(self, groups: Iterable[Group], now: int) -> None:
        """Take in what arrived in round `now`, then let go until the bounds hold."""
        for group in groups:
            mark = mark_of(group)
            if mark not in self._known:
                self._known[mark] = now
                self._wait(mark, now, group)
        while self._waiting and self._is_too_old(now):
            self._drop(next(iter(self._waiting)))
        while len(self._waiting) > self._limit_groups:
            most = max(self._marks_of.values(), key=len)
            self._drop(next(iter(most)))
        while self._known and self._too_long_known(now):
            self._known.pop(next(iter(self._known)))

    def put_back(self, group: Group, now: int) -> None:
        """A group that was taken and not used: it may be drawn again, for as long as a new one may."""
        if len(self._waiting) < self._limit_groups:
            self._wait(mark_of(group), now, group)

    def take(self, draw: random.Random, weights: Mapping[Author, float] | None = None) -> Group | None:
        """One group, which leaves the pool: uniformly, or with weights an author by its own and then one of
        its groups; None when it is empty."""
        if not self._waiting:
            return None
        marks = list(self._waiting) if weights is None else list(self._marks_of[self._author(draw, weights)])
        return self._let_go(marks[draw.randrange(len(marks))])

    @property
    def marks(self) -> tuple[int, ...]:
        """Of what is waiting, oldest arrival first."""
        return tuple(self._waiting)

    def keep_only(self, marks: Iterable[int]) -> None:
        """What is not among these has been taken since."""
        kept = set(marks)
        for mark in [mark for mark in self._waiting if mark not in kept]:
            self._let_go(mark)

    def kept(self) -> bytes:
        return msgspec.msgpack.encode(_Contents(tuple(self._waiting.values()), tuple(self._known.items())))

    def restore(self, kept: bytes) -> None:
        contents = msgspec.msgpack.decode(kept, type=_Contents)
        self._waiting, self._marks_of = {}, {}
        for arrived, group in contents.waiting:
            self._wait(mark_of(group), arrived, group)
        self._known = dict(contents.known)

    def _author(self, draw: random.Random, weights: Mapping[Author, float]) -> Author:
        authors = self.authors
        return draw.choices(authors, [weights[author] for author in authors])[0]

    def _wait(self, mark: int, now: int, group: Group) -> None:
        self._waiting[mark] = (now, group)
        self._marks_of.setdefault(group.author, {})[mark] = None

    def _let_go(self, mark: int) -> Group:
        _, group = self._waiting.pop(mark)
        del self._marks_of[group.author][mark]
        if not self._marks_of[group.author]:
            del self._marks_of[group.author]
        return group

    def _drop(self, mark: int) -> None:
        self._let_go(mark)
        self.dropped += 1

    def _is_too_old(self, now: int) -> bool:
        arrived, _ = self._waiting[next(iter(self._waiting))]
        return now - arrived > self._max_age_rounds

    def _too_long_known(self, now: int) -> bool:
        arrived = self._known[next(iter(self._known))]
        too_many = len(self._known) > REMEMBERED_PER_PLACE * self._limit_groups
        return too_many or now - arrived > self._max_age_rounds


def mark_of(group: Group) -> int:
    """The same in every process, as Python's own hash is not."""
    return int.from_bytes(hashlib.blake2b(msgspec.msgpack.encode(group), digest_size=8).digest(), "big")
