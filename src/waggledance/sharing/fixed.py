"""Mix `fixed(I, J)`, the paper's: I own groups and J foreign ones, whatever they turn out to be.

Foreign groups without advantage are dropped first, then the draw is uniform. With J = 0 it is plain RL.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from waggledance.rollout import ScoredGroup


@dataclass(frozen=True, slots=True)
class Fixed:
    own_groups: int
    foreign_groups: int

    def choose(self, own: Sequence[ScoredGroup], foreign: Iterator[ScoredGroup]) -> list[ScoredGroup]:
        informative = (scored for scored in foreign if scored.informative)
        return [*own, *islice(informative, self.foreign_groups)]
