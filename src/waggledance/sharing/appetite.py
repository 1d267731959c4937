"""Appetite: how many foreign groups a round are of use to a node, so that it listens to no more.

A small multiple of what its mix lately took from the pool (the filter throws most away where rewards are
rare), and as many as it may verify where the pool ran dry.
"""

import random
from collections.abc import Iterator, Mapping

import msgspec

from waggledance.rollout import Author, Group
from waggledance.sharing.pool import Pool

MULTIPLE = 4
LEAST_GROUPS = 32
"""So many always, so that a small swarm hears everyone and some are there when more are wanted."""
MEMORY_ROUNDS = 8


class Portion:
    """What a mix takes from the pool in one round: at most so many groups, drawn when asked for."""

    def __init__(
        self,
        pool: Pool,
        draw: random.Random,
        limit_groups: int,
        weights: Mapping[Author, float] | None = None,
    ) -> None:
        self._pool = pool
        self._draw = draw
        self._weights = weights
        self._limit_groups = limit_groups
        self.taken = 0
        self.dry = False
        """Whether more were asked for than there were."""

    def __iter__(self) -> Iterator[Group]:
        while self.taken < self._limit_groups:
            group = self._pool.take(self._draw, self._weights)
            if group is None:
                self.dry = True
                return
            self.taken += 1
            yield group


class Appetite:
    def __init__(self, limit_groups: int) -> None:
        self._limit_groups = limit_groups
        self._taken = float(limit_groups)
        """A round's, lately. Hungry at first: what a new node wants most is to hear the others."""

    def note(self, portion: Portion) -> None:
        now = self._limit_groups if portion.dry else portion.taken
        self._taken += (now - self._taken) / MEMORY_ROUNDS

    def kept(self) -> bytes:
        return msgspec.msgpack.encode(self._taken)

    def restore(self, kept: bytes) -> None:
        self._taken = msgspec.msgpack.decode(kept, type=float)

    @property
    def wanted(self) -> float:
        return max(1.0, min(self._limit_groups, max(LEAST_GROUPS, MULTIPLE * self._taken)))
