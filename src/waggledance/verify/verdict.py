"""Verdicts: what became of a group that was to be verified, and what judges it.

A verdict is the rewards, one a text, or the failure of whatever judged. In process (`Uncaged`) a rule of our
own judges and does not fail; in the cage anything may.
"""

from collections.abc import Callable, Sequence

from waggledance.seams import Pair, Verdict
from waggledance.task import Task
from waggledance.verify.answer import extract
from waggledance.verify.rules import RULES

Judge = Callable[[Task, Sequence[str]], tuple[float, ...]]
"""From a task and its texts to one reward a text."""


def verify(task: Task, texts: Sequence[str]) -> tuple[float, ...]:
    """One reward in [0, 1] for each text, by the task's rule; 0 for a text without an answer."""
    rule = RULES[task.rule]
    answers = [extract(text) for text in texts]
    return tuple(0.0 if answer is None else rule(answer, task.truth, task.partial) for answer in answers)


class Uncaged:
    """Verifies in this process, by our own rules alone: they are pure and bounded."""

    def verify(self, pairs: Sequence[Pair]) -> list[Verdict]:
        return [verify(task, texts) for task, texts in pairs]

    def close(self) -> None:
        """Holds nothing."""
