"""A pupil: the smallest node that can learn, for swarms of thousands in one process.

Its whole policy is one number, its ability: it answers a task right with the chance sigmoid(ability -
difficulty), where difficulties are spread normally over the tasks. It learns as a language model does: GRPO's
advantage times the gradient of the log-probability, over own and foreign groups alike. One text is right
and one wrong, so verifying costs next to nothing.
"""

import math
import random
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist, fmean, stdev

from waggledance.rollout import Rollout, ScoredGroup
from waggledance.seams import Lesson, Pair, Verdict
from waggledance.seed import derive
from waggledance.task import Digest, SourceName, Task

SMALLEST_SPREAD = 1e-4
"""As in a language model's advantage."""


@lru_cache(maxsize=1 << 17)
def _normal(index: int) -> float:
    """The task's place on the bell curve, by its index."""
    return NormalDist().inv_cdf((derive("difficulty", index) + 0.5) / 2**63)


class Skill:
    """A source of one kind of task, some easier than others."""

    name = SourceName("skill")
    digest = Digest("skill-1")
    size = 1_000_000

    def __init__(self, text_characters: int, difficulty_spread: float = 0.0) -> None:
        """A rollout has about so many characters; what it says beyond its first word is filler."""
        self._difficulty_spread = difficulty_spread
        filler = " because" * (text_characters // 8)
        self.right, self.wrong = f"right{filler}", f"wrong{filler}"

    def task(self, index: int) -> Task:
        return Task(self.name, index, "?", "text", "right")

    def difficulty(self, task: Task) -> float:
        return self._difficulty_spread * _normal(task.index) if self._difficulty_spread else 0.0

    def verify(self, pairs: Sequence[Pair]) -> list[Verdict]:
        """Its own verifier, too."""
        return [tuple(1.0 if text.startswith("right") else 0.0 for text in texts) for _, texts in pairs]

    def close(self) -> None:
        """Holds nothing."""


class Pupil:
    """Policy and learner in one."""

    def __init__(self, skill: Skill, ability: float, learning_rate: float) -> None:
        """A learning rate of 0 keeps it as it is."""
        self._skill = skill
        self._learning_rate = learning_rate
        self.ability = ability

    def generate(self, tasks: Sequence[Task], completions: int, seed: int) -> list[tuple[Rollout, ...]]:
        draw = random.Random(derive(seed, "pupil"))
        return [tuple(self._answer(self._success(task), draw) for _ in range(completions)) for task in tasks]

    def learn(self, groups: Sequence[ScoredGroup]) -> Lesson:
        informative = [scored for scored in groups if scored.informative]
        if informative and self._learning_rate:
            # Groups without advantage count in the mean, as in the loss of a language model.
            pulls = [_pull(scored.rewards, self._success(scored.task)) for scored in informative]
            self.ability += self._learning_rate * sum(pulls) / len(groups)
        return Lesson(groups=len(informative), tokens=0, loss=0.0, grad_norm=0.0, kl=0.0, clipped=0.0)

    def _success(self, task: Task) -> float:
        return 1 / (1 + math.exp(self._skill.difficulty(task) - self.ability))

    def _answer(self, success: float, draw: random.Random) -> Rollout:
        text = self._skill.right if draw.random() < success else self._skill.wrong
        return Rollout(text, finished=True, tokens=1, mean_logprob=-1.0)


def solves(pupil: Pupil) -> bool:
    """Right on a task of middle difficulty, and so on the mean of all, half the time."""
    return pupil.ability >= 0


def _pull(rewards: Sequence[float], success: float) -> float:
    """The group's mean of advantage × d log-probability / d ability; the latter is reward - success."""
    mean, spread = fmean(rewards), stdev(rewards) + SMALLEST_SPREAD
    return fmean((reward - mean) / spread * (reward - success) for reward in rewards)
