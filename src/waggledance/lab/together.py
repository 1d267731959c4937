"""Nodes that think together: one stack for all of a kind, and for each node what is its own of it."""

# pyright: standard

import time
from collections.abc import Mapping, Sequence

from waggledance.lab.stack import Stack
from waggledance.lab.thinkers import Asked, Mind
from waggledance.rollout import Rollout, ScoredGroup
from waggledance.seams import Lesson
from waggledance.task import Task


class Slot:
    """One node's end of a stack: a policy, a learner and a watch for its share of the stack's time."""

    def __init__(self) -> None:
        self._asked: tuple[list[Task], int, int] | None = None
        self._answers: list[tuple[Rollout, ...]] = []
        self._lesson: Lesson | None = None
        self._answering_s = self._learning_s = self._spent_s = 0.0

    def hold_answers(self, asked: Asked, answers: list[tuple[Rollout, ...]], seconds: float) -> None:
        self._asked = list(asked.tasks), asked.completions, asked.seed
        self._answers, self._answering_s = answers, seconds

    def hold_lesson(self, lesson: Lesson, seconds: float) -> None:
        self._lesson, self._learning_s = lesson, seconds

    def generate(self, tasks: Sequence[Task], completions: int, seed: int) -> list[tuple[Rollout, ...]]:
        assert self._asked == (list(tasks), completions, seed), "the stack was asked something else"
        self._asked = None
        self._spent_s += self._answering_s
        return self._answers

    def learn(self, groups: Sequence[ScoredGroup]) -> Lesson:
        del groups  # the stack has them
        assert self._lesson is not None, "the stack has not learned this round"
        lesson, self._lesson = self._lesson, None
        self._spent_s += self._learning_s
        return lesson

    def stopwatch(self) -> float:
        return self._spent_s


class Together:
    def __init__(self, stacks: Sequence[tuple[Stack, Sequence[int]]]) -> None:
        """Each stack with the heat's nodes that are its first, second, …"""
        self.stacks = tuple(stacks)
        self._where = {node: (stack, k) for stack, nodes in stacks for k, node in enumerate(nodes)}
        self._slots = {node: Slot() for node in self._where}

    def mind(self, node: int) -> Mind:
        slot = self._slots[node]
        return Mind(slot, slot, slot.stopwatch)

    def answer(self, asked: Sequence[Asked]) -> None:
        for stack, mine in self._by_stack(asked):
            start = time.perf_counter()
            local = [Asked(self._where[one.node][1], one.tasks, one.completions, one.seed) for one in mine]
            answers = stack.answer(local)
            seconds = time.perf_counter() - start
            tokens = [sum(rollout.tokens for group in own for rollout in group) for own in answers]
            for one, own, count in zip(mine, answers, tokens, strict=True):
                self._slots[one.node].hold_answers(one, own, seconds * count / max(1, sum(tokens)))

    def learn(self, batches: Mapping[int, Sequence[ScoredGroup]]) -> None:
        for stack, nodes in self.stacks:
            mine = [node for node in nodes if node in batches]
            start = time.perf_counter()
            lessons = stack.learn({self._where[node][1]: batches[node] for node in mine})
            seconds = time.perf_counter() - start
            tokens = sum(lesson.tokens for lesson in lessons.values())
            for node in mine:
                lesson = lessons[self._where[node][1]]
                self._slots[node].hold_lesson(lesson, seconds * lesson.tokens / max(1, tokens))

    def _by_stack(self, asked: Sequence[Asked]) -> list[tuple[Stack, list[Asked]]]:
        return [
            (stack, [one for one in asked if self._where[one.node][0] is stack]) for stack, _ in self.stacks
        ]
