"""Mix `rescue`: help only where one needs it.

Own groups as in the paper; foreign ones only from the task sources in which every own rollout of the round
failed, and only such as hold a right answer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from waggledance.rollout import ScoredGroup


@dataclass(frozen=True, slots=True)
class Rescue:
    own_groups: int
    foreign_groups: int

    def choose(self, own: Sequence[ScoredGroup], foreign: Iterator[ScoredGroup]) -> list[ScoredGroup]:
        right = {scored.task.source for scored in own if max(scored.rewards) > 0}
        lost = {scored.task.source for scored in own} - right
        helpful = (scored for scored in foreign if scored.informative and scored.task.source in lost)
        return [*own, *(islice(helpful, self.foreign_groups) if lost else ())]
