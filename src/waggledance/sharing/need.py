"""Mix `need`: foreign groups only into the slots that would teach nothing.

Own groups whose rewards differ come first, then foreign ones up to a cap, then the rest of one's own, as many
as the batch has room for. How many own groups are generated follows from how many of them teach: where few do
all slots are tried, for nobody else finds what nobody tries; where most do, the spared ones cost nothing.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import islice

from waggledance.rollout import ScoredGroup

MEMORY_ROUNDS = 16


class Need:
    def __init__(self, own_groups: int, foreign_groups: int) -> None:
        """So many own groups a round shall teach, and so many foreign ones at most."""
        self._wanted = own_groups
        self._cap = foreign_groups
        self._teaching = 0.0
        """The share of own groups that taught, lately."""

    @property
    def own_groups(self) -> int:
        slots = self._wanted + self._cap
        if self._wanted >= slots * self._teaching:
            return slots
        return min(slots, max(1, math.ceil(self._wanted / self._teaching)))

    def choose(self, own: Sequence[ScoredGroup], foreign: Iterator[ScoredGroup]) -> list[ScoredGroup]:
        slots = self._wanted + self._cap
        teaching = [scored for scored in own if scored.informative]
        if own:
            self._teaching += (len(teaching) / len(own) - self._teaching) / MEMORY_ROUNDS
        room = max(0, min(self._cap, slots - len(teaching)))
        taken = list(islice((scored for scored in foreign if scored.informative), room))
        rest = [scored for scored in own if not scored.informative]
        return [*teaching, *taken, *rest[: max(0, slots - len(teaching) - len(taken))]]
