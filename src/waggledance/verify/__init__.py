"""From hostile text to reward.

`verify` is all the rest of the package needs: it takes what stands between the answer tags and asks the
task's rule. No rule evaluates what it reads, raises on it, or takes time that its writer can choose.
"""

from collections.abc import Sequence

from waggledance.task import Task
from waggledance.verify.answer import LIMIT_BYTES, extract
from waggledance.verify.rules import RULES, right_answer

__all__ = ["LIMIT_BYTES", "RULES", "extract", "right_answer", "verify"]


def verify(task: Task, texts: Sequence[str]) -> tuple[float, ...]:
    """One reward in [0, 1] for each text; 0 for a text without an answer."""
    rule = RULES[task.rule]
    answers = [extract(text) for text in texts]
    return tuple(0.0 if answer is None else rule(answer, task.truth, task.partial) for answer in answers)
