"""Mix `corrected`: any mix, its foreign groups marked to count by how likely this node finds them.

What that comes to is the learner's to say: it computes the likelihood anyway.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from waggledance.rollout import ScoredGroup
from waggledance.seams import Mix


@dataclass(frozen=True, slots=True)
class Corrected:
    mix: Mix

    @property
    def own_groups(self) -> int:
        return self.mix.own_groups

    def choose(self, own: Sequence[ScoredGroup], foreign: Iterator[ScoredGroup]) -> list[ScoredGroup]:
        return self.mix.choose(own, (replace(scored, doubted=True) for scored in foreign))
