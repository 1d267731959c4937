"""Quotes: the few rollouts of a round that are told, so that a person can see what is being said.

Scored groups and a draw come in, `Said` events go out: the best own rollout, and one drawn from the own and
one from the foreign groups, good or bad. What travels, is trained on or counted must not hang on them.
"""

import random
from collections.abc import Sequence

from waggledance.events import Said
from waggledance.rollout import ScoredGroup

TEXT_LIMIT = 2000
"""Characters of a question or a rollout that go into the journal: a stranger's may be a hundred thousand."""


def best_said(scored: Sequence[ScoredGroup]) -> list[Said]:
    """The rollout with the highest reward; nothing of nothing."""
    told = max(scored, key=lambda one: max(one.rewards), default=None)
    return [] if told is None else [_said(told, max(range(len(told.rewards)), key=told.rewards.__getitem__))]


def any_said(scored: Sequence[ScoredGroup], rng: random.Random) -> list[Said]:
    """Any rollout of any group; nothing of nothing."""
    candidates = [one for one in scored if one.rewards]
    if not candidates:
        return []
    told = rng.choice(candidates)
    return [_said(told, rng.randrange(len(told.rewards)))]


def _said(scored: ScoredGroup, place: int) -> Said:
    return Said(
        author=scored.group.author,
        source=scored.task.source,
        question=scored.task.question[:TEXT_LIMIT],
        text=scored.group.rollouts[place].text[:TEXT_LIMIT],
        reward=scored.rewards[place],
    )
