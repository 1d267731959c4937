"""The pool: foreign groups that may be trained on, waiting unverified.

Bounded in number and age, newest kept, each group in it once and handed out once. What falls out is counted.
It must not know tasks or rewards: a group is verified only when it is taken.
"""

import random
from collections.abc import Hashable, Iterable

from waggledance.rollout import Author, Group

Key = tuple[Author, int, str, int]


class Pool:
    def __init__(self, *, limit_groups: int, max_age_rounds: int) -> None:
        self._limit_groups = limit_groups
        self._max_age_rounds = max_age_rounds
        self._waiting: dict[Hashable, tuple[int, Group]] = {}
        """By key, oldest arrival first: (the receiver's round at arrival, the group)."""
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, groups: Iterable[Group], now: int) -> None:
        """Take in what arrived in round `now`, then let the oldest go until the bounds hold."""
        for group in groups:
            self._waiting.setdefault(_key(group), (now, group))
        while self._waiting and self._too_much(now):
            self._waiting.pop(next(iter(self._waiting)))
            self.dropped += 1

    def take(self, draw: random.Random) -> Group | None:
        """One group, uniformly, which leaves the pool; None when it is empty."""
        if not self._waiting:
            return None
        keys = list(self._waiting)
        return self._waiting.pop(keys[draw.randrange(len(keys))])[1]

    def _too_much(self, now: int) -> bool:
        arrived, _ = self._waiting[next(iter(self._waiting))]
        return len(self._waiting) > self._limit_groups or now - arrived > self._max_age_rounds


def _key(group: Group) -> Key:
    return group.author, group.round, group.source, group.index
