"""Events: what happened to a node, as values. Views, tests and the journal read these and nothing else.

An entry says when, who and in which round; its event says what. Entries are plain data and become one JSON
line each. An event holds numbers and text, never a tensor, a path object or an exception.
"""

import msgspec

from waggledance.rollout import Author


class Started(msgspec.Struct, frozen=True, tag="started"):
    model: str
    weights: int
    sources: tuple[str, ...]
    mix: str
    rounds: int
    completions: int
    seed: int
    version: str
    notice: str = ""
    """What people should know of this run before it goes on; mostly nothing."""


class Evaluated(msgspec.Struct, frozen=True, tag="evaluated"):
    """The held-out reward: a fixed set of tasks that nobody trains on."""

    reward: float
    by_source: dict[str, float]
    rollouts: int
    seconds: float


class Generated(msgspec.Struct, frozen=True, tag="generated"):
    groups: int
    rollouts: int
    tokens: int
    seconds: float


class Verified(msgspec.Struct, frozen=True, tag="verified"):
    """The own reward: a node's fresh generations before the update."""

    reward: float
    informative: int
    """Groups whose rewards differ."""
    seconds: float
    by_source: dict[str, float] = {}
    """The same by task source."""


class Said(msgspec.Struct, frozen=True, tag="said"):
    """One rollout of the round, to look at: the best own one, and any own and any foreign one."""

    author: Author
    source: str
    question: str
    text: str
    reward: float


class Shared(msgspec.Struct, frozen=True, tag="shared"):
    groups: int
    bytes: int


class Sampled(msgspec.Struct, frozen=True, tag="sampled"):
    own: int
    foreign: int
    by_author: dict[str, int]
    """Foreign groups taken into the batch, by who wrote them."""
    pool: int
    """Groups left in the pool."""
    peers: int
    refused: dict[str, int]
    """What was not let in during this round, by reason."""
    refused_of: dict[str, dict[str, int]] = {}
    """The same by author and reason, where the author is known."""
    heard: int = 0
    """Groups that came in during this round."""
    dropped: int = 0
    """Groups that a full queue pushed out during this round: mailbox, outbox or pool."""
    listening: float = 1.0
    """The share of the swarm that this node listens to."""
    given: dict[str, int] = {}
    """Groups that came in during this round, by who wrote them."""
    useful: dict[str, float] = {}
    """The credit of the foreign groups in the batch, by who wrote them."""


class Met(msgspec.Struct, frozen=True, tag="met"):
    """A peer is here; what it says of itself."""

    author: Author
    model: str
    weights: int
    version: str
    sources: dict[str, str]
    """Its task sources and their digests."""


class Parted(msgspec.Struct, frozen=True, tag="parted"):
    author: Author
    why: str
    """`left` if it said so, `lost` if it only fell silent."""


class Learned(msgspec.Struct, frozen=True, tag="learned"):
    """The trained reward: over the update's whole batch, which is the paper's metric."""

    reward: float
    groups: int
    tokens: int
    loss: float
    grad_norm: float
    kl: float
    clipped: float
    seconds: float
    value_loss: float = 0.0
    skipped: int = 0
    """Steps that were not made, for their gradient was not finite."""
    """Of a learner with a value head: half its squared miss."""


class Used(msgspec.Struct, frozen=True, tag="used"):
    """What a node's process takes of its machine, after a round."""

    memory_bytes: int
    peak_bytes: int
    cpu_seconds: float
    """Since it started."""


class Saved(msgspec.Struct, frozen=True, tag="saved"):
    path: str


class Resumed(msgspec.Struct, frozen=True, tag="resumed"):
    """A run goes on after its newest round that was kept."""

    round: int
    learned_again: int
    """Rounds since the whole checkpoint, learned again from their records."""
    seconds: float
    damaged: tuple[str, ...] = ()
    """Checkpoints that had to be passed over, and why."""


class Unsaved(msgspec.Struct, frozen=True, tag="unsaved"):
    """Rounds cannot be kept; training goes on."""

    error: str | None
    """None: they are kept again."""


class Stuck(msgspec.Struct, frozen=True, tag="stuck"):
    """A phase lasts longer than it should."""

    phase: str
    where: str
    """The line of this package that it is in."""
    seconds: float


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    why: str


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    error: str
    exit_code: int


Event = (
    Started
    | Evaluated
    | Generated
    | Verified
    | Said
    | Shared
    | Met
    | Parted
    | Sampled
    | Learned
    | Used
    | Saved
    | Resumed
    | Unsaved
    | Stuck
    | Finished
    | Failed
)


class Entry(msgspec.Struct, frozen=True):
    at: float
    """Seconds since 1970, by the node's own clock: good for rates, never for order between nodes."""
    node: Author
    round: int
    event: Event
