"""The seams: what the parts of a node must do for each other, and nothing about how.

`node.py` puts the parts together; no part imports another. Each seam has a plain stand-in beside the real
thing: the scripted policy, the swarm in memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from waggledance.events import Met, Parted
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


class Failure(StrEnum):
    """Why a group has no rewards."""

    TIMED_OUT = "timed out"
    KILLED = "killed"
    """Whatever judged it ended: out of memory, out of processor time, or worse."""
    RAISED = "raised"
    UNTRIED = "untried"
    """Those before it had used up the time."""


Pair = tuple[Task, Sequence[str]]
"""A task and the texts that answer it."""
Verdict = tuple[float, ...] | Failure
"""One reward in [0, 1] a text, or none for any."""


class Verifier(Protocol):
    """From hostile text to reward."""

    def verify(self, pairs: Sequence[Pair]) -> list[Verdict]:
        """One verdict a pair, in their order. Never raises at what it reads, and never takes long over it."""
        ...

    def close(self) -> None: ...


class Policy(Protocol):
    """Who answers."""

    def generate(self, tasks: Sequence[Task], completions: int, seed: int) -> list[tuple[Rollout, ...]]:
        """For every task as many rollouts as `completions` says. Same weights, same seed: same rollouts."""
        ...


class Reader(Protocol):
    """Who can say how likely a text is under this node's own model."""

    def logprobs(self, tasks: Sequence[Task], groups: Sequence[Group]) -> list[tuple[tuple[float, ...], ...]]:
        """For every group, which answers the task at its place, and each of its rollouts: the log-probability
        of every token."""
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
    value_loss: float = 0.0
    """How far a value head's expectation was off, for a learner that has one."""
    skipped: int = 0
    """Steps that were not made, for their gradient was not finite."""


class Learner(Protocol):
    """What learns. It cannot tell own groups from foreign ones but by the weight it is handed."""

    def learn(self, groups: Sequence[ScoredGroup]) -> Lesson: ...


class LastingLearner(Learner, Protocol):
    """A learner that a restart brings back as it was."""

    def kept(self) -> Mapping[str, Any]:
        """All that its steps have moved, as tensors by name: weights, and what the optimiser remembers. They
        are the learner's own, not copies."""
        ...

    def restore(self, kept: Mapping[str, Any]) -> None: ...


@runtime_checkable
class Lasting(Protocol):
    """A part that knows something small which a restart must not lose."""

    def kept(self) -> bytes: ...
    def restore(self, kept: bytes) -> None: ...


@dataclass(frozen=True, slots=True)
class Traffic:
    """What has crossed a swarm's boundary since it was opened."""

    sent_groups: int = 0
    sent_bytes: int = 0
    received_groups: int = 0
    received_bytes: int = 0
    dropped: int = 0
    """Groups that a full queue pushed out, oldest first, on their way out or in."""
    refused: Mapping[tuple[Author | None, str], int] = field(
        default_factory=dict[tuple[Author | None, str], int]
    )
    """Messages that were not let in, by who signed them (None: nobody known) and reason."""
    listening: float = 1.0
    """The share of the swarm's messages that this node listens to."""


@dataclass(frozen=True, slots=True)
class Card:
    """What a node tells of itself. Claims, not facts: for people to look at, never to decide by."""

    model: str
    weights: int
    version: str
    sources: Mapping[SourceName, Digest]
    round: int = 0
    rounds_per_minute: float = 0.0
    leaving: bool = False


@dataclass(frozen=True, slots=True)
class Peer:
    """Somebody who is here."""

    author: Author
    since: float
    """When this node first saw it, in seconds by this node's own clock."""
    card: Card | None
    """None until it has come."""


class Swarm(Protocol):
    """The others. Nothing here blocks: publishing never waits, draining takes what is there."""

    def publish(self, group: Group) -> None: ...
    def drain(self, wanted: float) -> list[Group]:
        """What has come. `wanted` is how many groups a round are of use: more need not be listened to."""
        ...

    def peers(self) -> Mapping[Author, Peer]: ...
    def grants(self) -> Mapping[Author, str]:
        """By whose grant an author speaks, where somebody grants that: one grant may serve many authors."""
        ...

    def news(self) -> list[Met | Parted]:
        """Who came and who went since the last call."""
        ...

    def traffic(self) -> Traffic: ...
    @property
    def trouble(self) -> str | None:
        """Why nobody can be reached just now, where that is known."""
        ...

    def close(self) -> None: ...


class Mix(Protocol):
    """What to train on: own groups, and foreign ones that the pool hands out, scored, one at a time."""

    @property
    def own_groups(self) -> int:
        """How many groups of its own the node generates in a round."""
        ...

    def choose(self, own: Sequence[ScoredGroup], foreign: Iterator[ScoredGroup]) -> list[ScoredGroup]: ...
