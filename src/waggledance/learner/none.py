"""Learner `none`: for nodes that give and do not train."""

from collections.abc import Mapping, Sequence
from typing import Any

from waggledance.rollout import ScoredGroup
from waggledance.seams import Lesson


class NoLearner:
    def learn(self, groups: Sequence[ScoredGroup]) -> Lesson:
        """Reports what there was to learn from."""
        return Lesson(
            groups=sum(scored.informative for scored in groups),
            tokens=0,
            loss=0.0,
            grad_norm=0.0,
            kl=0.0,
            clipped=0.0,
        )

    def kept(self) -> Mapping[str, Any]:
        return {}

    def restore(self, kept: Mapping[str, Any]) -> None:
        assert not kept
