"""Policy `scripted`: answers right at a given rate, by the seed. No model, no torch.

For tests and for swarms whose traffic matters and whose learning does not.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from waggledance.rollout import Rollout
from waggledance.seed import derive
from waggledance.task import SourceName, Task


@dataclass(frozen=True, slots=True)
class ScriptedPolicy:
    right_answer: Callable[[Task], str]
    """What the task's rule pays for: a policy knows no rules."""
    success: float
    """The chance that a rollout is right."""
    by_source: Mapping[SourceName, float] = field(default_factory=dict[SourceName, float])
    """Chances that differ from it, for specialists."""

    def generate(self, tasks: Sequence[Task], completions: int, seed: int) -> list[tuple[Rollout, ...]]:
        return [
            tuple(self._answer(task, random.Random(derive(seed, place, k))) for k in range(completions))
            for place, task in enumerate(tasks)
        ]

    def _answer(self, task: Task, draw: random.Random) -> Rollout:
        right = draw.random() < self.by_source.get(task.source, self.success)
        answer = self.right_answer(task) if right else f"not {draw.randrange(1000)}"
        text = f"<answer>{answer}</answer>"
        return Rollout(text=text, finished=True, tokens=len(text.split()), mean_logprob=-1.0)
