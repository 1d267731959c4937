"""Rollouts and groups: what a policy tried.

A group is one task's rollouts by one author: the unit that is shared, sampled and credited. It travels
without question, truth or reward; whoever takes it builds the task and scores the rollouts again.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NewType

from waggledance.task import Digest, SourceName, Task

Author = NewType("Author", str)
"""Who wrote it: a name for people and, where strangers meet, a fingerprint of the key that signs for it."""
_FINGERPRINTED = re.compile(r"(?P<name>.+)\.(?P<key>[a-z2-7]{16})")
CARRIED_LIMIT_CHARACTERS = 8192
"""Of a question or a truth that travels."""


def name_of(author: Author) -> str:
    """The part for people: two authors may share it."""
    match = _FINGERPRINTED.fullmatch(author)
    return match["name"] if match else author


def key_of(author: Author) -> str:
    """The fingerprint of the key that signs; empty where nobody does, among nodes of one process."""
    match = _FINGERPRINTED.fullmatch(author)
    return match["key"] if match else ""


@dataclass(frozen=True, slots=True)
class Rollout:
    """One completion of one task's prompt."""

    text: str
    finished: bool
    """True when the author's model ended it by itself, False when it ran out of tokens."""
    tokens: int
    """Its length in the author's own tokens, end token included."""
    mean_logprob: float
    """Its mean log-probability per token under its author."""
    token_ids: tuple[int, ...] = ()
    """The very tokens the author drew. Known at home only: another node's tokenizer makes its own."""


@dataclass(frozen=True, slots=True)
class Carried:
    """A task that others cannot build: what they need to verify answers to it by a rule of theirs."""

    question: str
    rule: str
    truth: str


@dataclass(frozen=True, slots=True)
class Group:
    author: Author
    round: int
    source: SourceName
    digest: Digest
    index: int
    rollouts: tuple[Rollout, ...]
    place: int = 0
    """Which of its author's draws of that round: with key and round it says what the index must be."""
    carried: Carried | None = None


@dataclass(frozen=True, slots=True)
class ScoredGroup:
    """A group with its task and the rewards this node gave it: what a learner learns from."""

    group: Group
    task: Task
    rewards: tuple[float, ...]
    weight: float = 1.0
    doubted: bool = False
    """Whether each rollout counts by how likely this node finds it beside its author."""

    @property
    def informative(self) -> bool:
        """Whether its rewards differ: a group whose rewards are all equal credits nothing."""
        return len(set(self.rewards)) > 1


def author_logprob(rollout: Rollout) -> float:
    """Of the whole text, under its author."""
    return rollout.mean_logprob * rollout.tokens


def mean_reward(groups: Sequence[ScoredGroup]) -> float:
    """The mean over all rollouts of all groups; 0 for no rollouts."""
    rewards = [reward for scored in groups for reward in scored.rewards]
    return sum(rewards) / len(rewards) if rewards else 0.0
