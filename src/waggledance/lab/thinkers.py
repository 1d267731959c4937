"""Thinkers: who answers and learns for the nodes of a heat.

Before the nodes of a heat answer, or learn, their thinkers hear what all of them will be asked: a stack works
it out in batched calls and hands each node its share, nodes apart do nothing and think when they are asked.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from waggledance.rollout import ScoredGroup
from waggledance.seams import Learner, Policy
from waggledance.task import Task


@dataclass(frozen=True, slots=True)
class Asked:
    """What one node wants answered."""

    node: int
    tasks: Sequence[Task]
    completions: int
    seed: int


@dataclass(frozen=True, slots=True)
class Mind:
    policy: Policy
    learner: Learner
    stopwatch: Callable[[], float] = time.perf_counter


class Thinkers(Protocol):
    def mind(self, node: int) -> Mind: ...
    def answer(self, asked: Sequence[Asked]) -> None: ...
    def learn(self, batches: Mapping[int, Sequence[ScoredGroup]]) -> None: ...


class Apart:
    """Every node for itself."""

    def __init__(self, minds: Sequence[Mind]) -> None:
        self._minds = tuple(minds)

    def mind(self, node: int) -> Mind:
        return self._minds[node]

    def answer(self, asked: Sequence[Asked]) -> None:
        pass

    def learn(self, batches: Mapping[int, Sequence[ScoredGroup]]) -> None:
        pass
