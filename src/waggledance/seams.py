"""The seams: what the parts of a node must do for each other, and nothing about how.

`node.py` puts the parts together; no part imports another. Each seam has a plain stand-in beside the real
thing: the scripted policy, the swarm in memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from waggledance.rollout import Author, Group, Rollout, ScoredGroup
from waggledance.task import Digest, SourceName, Task


class Source(Protocol):
    """Where questions come from, by index."""

    @property
    def name(self) -> SourceName: ...
    @property
    def digest(self) -> Digest: ...
    @property
    def size(self) -> int:
        """How many tasks may be trained on: indices 0 … size-1. Held-out tasks lie at size and above."""
        ...

    def task(self, index: int) -> Task: ...
    def verify(self, task: Task, texts: Sequence[str]) -> tuple[float, ...]: ...


class Policy(Protocol):
    """Who answers."""

    def generate(self, tasks: Sequence[Task], completions: int, seed: int) -> list[tuple[Rollout, ...]]:
        """For every task as many rollouts as `completions` says. Same weights, same seed: same rollouts."""
        ...


@dataclass(frozen=True, slots=True)
class Lesson:
    """What a learner reports of one update."""

    groups: int
    """Groups that carried credit; the others were dropped before any forward pass."""
    tokens: int
    """Completion tokens trained on."""
    loss: float
    grad_norm: float
    kl: float
    clipped: float
    """The share of tokens whose ratio was clipped."""


class Learner(Protocol):
    """What learns. It cannot tell own groups from foreign ones but by the weight it is handed."""

    def learn(self, groups: Sequence[ScoredGroup]) -> Lesson: ...


@dataclass(frozen=True, slots=True)
class Traffic:
    """What has crossed a swarm's boundary since it was opened."""

    sent_groups: int = 0
    sent_bytes: int = 0
    received_groups: int = 0
    received_bytes: int = 0
    dropped: int = 0
    """Groups that a full mailbox pushed out, oldest first."""
    refused: Mapping[str, int] = field(default_factory=dict[str, int])
    """Messages that were not let in, by reason."""


class Swarm(Protocol):
    """The others. Nothing here blocks: publishing never waits, draining takes what is there."""

    def publish(self, group: Group) -> None: ...
    def drain(self) -> list[Group]: ...
    def peers(self) -> frozenset[Author]: ...
    def traffic(self) -> Traffic: ...
    def close(self) -> None: ...


class Mix(Protocol):
    """What to train on: own groups, and foreign ones that the pool hands out, scored, one at a time."""

    @property
    def own_groups(self) -> int:
        """How many groups of its own the node generates in a round."""
        ...

    def choose(self, own: Sequence[ScoredGroup], foreign: Iterator[ScoredGroup]) -> list[ScoredGroup]: ...
