"""Mix `replay`: any mix, and groups that taught lately once more into the slots that would teach nothing.

Each is replayed once, the newest first, none older than a limit; it counts by how likely it still is.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace

from waggledance.rollout import ScoredGroup
from waggledance.seams import Mix


class Replay:
    def __init__(self, mix: Mix, max_age_rounds: int) -> None:
        self._mix = mix
        self._max_age_rounds = max_age_rounds
        self._round = 0
        self._taught: deque[tuple[int, ScoredGroup]] = deque()
        """With the round, oldest first."""

    @property
    def own_groups(self) -> int:
        return self._mix.own_groups

    def choose(self, own: Sequence[ScoredGroup], foreign: Iterator[ScoredGroup]) -> list[ScoredGroup]:
        self._round += 1
        while self._taught and self._round - self._taught[0][0] > self._max_age_rounds:
            self._taught.popleft()
        batch = self._mix.choose(own, foreign)
        teaching = [scored for scored in batch if scored.informative]
        rest = [scored for scored in batch if not scored.informative]
        again = [self._taught.pop()[1] for _ in range(min(len(rest), len(self._taught)))]
        self._taught.extend((self._round, scored) for scored in teaching)
        return [*teaching, *(replace(scored, doubted=True) for scored in again), *rest[len(again) :]]
