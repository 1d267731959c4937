"""The one fold: events in, the state of a run out. Every view shows this and nothing else.

`fold` is pure and states are frozen, so a page, a terminal and a test may hold one and the next at once. That
is affordable because whatever grows is bounded (curves, quotes, recent rounds): an entry costs microseconds.
Entries may come late, twice or from the middle of a run; none of that raises.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Literal, TypeVar

import msgspec

from waggledance.events import (
    Entry,
    Evaluated,
    Event,
    Failed,
    Finished,
    Generated,
    Learned,
    Met,
    Parted,
    Resumed,
    Said,
    Sampled,
    Saved,
    Shared,
    Started,
    Stuck,
    Unsaved,
    Used,
    Verified,
)
from waggledance.rollout import Author
from waggledance.view.curve import Curve

Phase = Literal["start", "measure", "generate", "verify", "share", "sample", "learn", "done", "failed"]
"""What a node is busy with, as far as its newest event tells."""

RECENT_ROUNDS = 20
QUOTES_LIMIT = 8
SAID_LIMIT = 400
"""Of a whole swarm's rollouts, to browse."""
MET_LIMIT = 512
BLAMED_LIMIT = 512
SOURCES_LIMIT = 128
REASONS_LIMIT = 24
"""A stranger can make up reasons: each version of the wire that it claims is one."""
SMALL_CURVE = Curve(limit=256)
"""For what is drawn small: by task, by reason, seconds, gradients."""
OTHER_REASONS = "other"


N = TypeVar("N", int, float)


class Neighbour(msgspec.Struct, frozen=True):
    met: Met
    at: float
    """When, by the node's own clock."""


class Quote(msgspec.Struct, frozen=True):
    round: int
    said: Said


class Saying(msgspec.Struct, frozen=True):
    """A quote in the order of the whole swarm, and who told it: that is its author, or one who took it."""

    serial: int
    teller: Author
    round: int
    said: Said


class NodeState(msgspec.Struct, frozen=True):
    author: Author
    started: Started | None = None
    model: str = ""
    mix: str = ""
    rounds: int = 0
    """How many rounds are planned."""
    round: int = 0
    phase: Phase = "start"
    started_at: float | None = None
    seen_at: float = 0.0

    own: Curve = Curve()
    trained: Curve = Curve()
    heldout: Curve = Curve()
    heldout_start: float | None = None
    heldout_rollouts: int = 0
    """How many answers the newest measurement rests on."""
    evaluations: int = 0
    own_by_source: Mapping[str, Curve] = msgspec.field(default_factory=dict[str, Curve])
    heldout_by_source: Mapping[str, Curve] = msgspec.field(default_factory=dict[str, Curve])

    skipped_steps: int = 0
    """Not made, for their gradient was not finite."""
    grad_norm: Curve = SMALL_CURVE
    kl: Curve = SMALL_CURVE
    round_seconds: Curve = SMALL_CURVE
    """How long rounds took, by the node's own clock."""
    learned_at: float | None = None
    memory_bytes: int = 0
    peak_bytes: int = 0
    cpu_seconds: float = 0.0

    tokens_generated: int = 0
    tokens_trained: int = 0
    seconds_generating: float = 0.0
    seconds_learning: float = 0.0
    groups_shared: int = 0
    bytes_shared: int = 0

    taken: Mapping[str, int] = msgspec.field(default_factory=dict[str, int])
    """Foreign groups trained on, by author, since the start."""
    given: Mapping[str, int] = msgspec.field(default_factory=dict[str, int])
    """Foreign groups that came, by author."""
    useful: Mapping[str, float] = msgspec.field(default_factory=dict[str, float])
    """The credit that those trained on carried, by author."""
    taken_by_round: tuple[Mapping[str, int], ...] = ()
    """The same for each of the newest rounds."""
    pool: int = 0
    peers: int = 0
    met: Mapping[Author, Neighbour] = msgspec.field(default_factory=dict[Author, Neighbour])
    """Who is here, as far as they told."""
    parted: Mapping[str, int] = msgspec.field(default_factory=dict[str, int])
    """How many left, and how many were lost."""
    heard: int = 0
    dropped: int = 0
    listening: float = 1.0
    refused: Mapping[str, int] = msgspec.field(default_factory=dict[str, int])
    refusals: Mapping[str, Curve] = msgspec.field(default_factory=dict[str, Curve])
    """How many were refused in a round, by reason; a reason's curve begins where it was first met."""
    refused_of: Mapping[str, Mapping[str, int]] = msgspec.field(default_factory=dict[str, Mapping[str, int]])

    quotes: tuple[Quote, ...] = ()
    """What was said newest, rewarded or not, by this node or by others."""
    rewarded: tuple[Quote, ...] = ()
    """What earned something of what this node said itself."""
    saved: str | None = None
    finished: str | None = None
    error: str | None = None
    resumed: int | None = None
    """The round that the newest start went on after."""
    unsaved: str | None = None
    """Why the newest rounds are not kept."""
    stuck: str | None = None
    """Where it is stuck, and for how long."""

    @property
    def taken_recently(self) -> Mapping[str, int]:
        return _summed(self.taken_by_round)

    @property
    def ended(self) -> bool:
        return self.finished is not None or self.error is not None


class SwarmState(msgspec.Struct, frozen=True):
    nodes: Mapping[Author, NodeState] = msgspec.field(default_factory=dict[Author, NodeState])
    said: tuple[Saying, ...] = ()
    """What was said newest by anybody, oldest first."""
    said_count: int = 0
    """How much was said since the start: a saying's serial is its place in this."""

    @property
    def in_order(self) -> list[NodeState]:
        """By name, so that n2 comes before n10 and a node keeps its line on the screen."""
        return sorted(self.nodes.values(), key=lambda node: (len(node.author), node.author))


def fold(swarm: SwarmState, entry: Entry) -> SwarmState:
    return fold_all(swarm, (entry,))


def fold_all(swarm: SwarmState, entries: Iterable[Entry]) -> SwarmState:
    """One copy for all of them: of a crowd's nodes each entry changes one."""
    nodes, said = dict(swarm.nodes), list(swarm.said)
    count = swarm.said_count
    for entry in entries:
        nodes[entry.node] = fold_node(nodes.get(entry.node) or NodeState(author=entry.node), entry)
        if isinstance(entry.event, Said):
            said.append(Saying(count, entry.node, entry.round, entry.event))
            count += 1
            if len(said) >= 2 * SAID_LIMIT:
                del said[:-SAID_LIMIT]
    return SwarmState(nodes, tuple(said[-SAID_LIMIT:]), count)


def fold_node(node: NodeState, entry: Entry) -> NodeState:
    seen = msgspec.structs.replace(node, round=entry.round, seen_at=max(node.seen_at, entry.at), stuck=None)
    return _told(seen, entry.event, entry.at)


def _told(node: NodeState, event: Event, at: float) -> NodeState:
    if isinstance(event, Started | Evaluated | Used | Saved | Finished | Failed):
        return _told_of_run(node, event, at)
    if isinstance(event, Met | Parted):
        return _told_of_peers(node, event, at)
    if isinstance(event, Resumed | Unsaved | Stuck):
        return _told_of_keeping(node, event)
    return _told_of_round(node, event, at)


def _told_of_run(
    node: NodeState, event: Started | Evaluated | Used | Saved | Finished | Failed, at: float
) -> NodeState:
    change = msgspec.structs.replace
    match event:
        case Started():
            # A node that starts again has outlived what ended it.
            return change(
                node,
                started=event,
                learned_at=at,
                model=event.model,
                mix=event.mix,
                rounds=event.rounds,
                phase="measure",
                started_at=node.seen_at if node.started_at is None else node.started_at,
                finished=None,
                error=None,
            )
        case Evaluated():
            first = event.reward if node.heldout_start is None else node.heldout_start
            return change(
                node,
                phase="generate",
                heldout=node.heldout.with_point(node.round, event.reward),
                heldout_start=first,
                heldout_rollouts=event.rollouts,
                evaluations=node.evaluations + 1,
                heldout_by_source=_curves(node.heldout_by_source, node.round, event.by_source),
                # Measuring is no part of the next round's time.
                learned_at=at,
            )
        case Used():
            return change(
                node,
                memory_bytes=event.memory_bytes,
                peak_bytes=event.peak_bytes,
                cpu_seconds=event.cpu_seconds,
            )
        case Saved():
            return change(node, saved=event.path)
        case Finished():
            return change(node, phase="done", finished=event.why)
        case Failed():
            return change(node, phase="failed", error=event.error)


def _told_of_keeping(node: NodeState, event: Resumed | Unsaved | Stuck) -> NodeState:
    change = msgspec.structs.replace
    match event:
        case Resumed():
            return change(node, resumed=event.round, phase="generate")
        case Unsaved():
            return change(node, unsaved=event.error)
        case Stuck():
            return change(node, stuck=f"{event.phase} for {event.seconds:.0f} s, at {event.where}")


def _told_of_round(
    node: NodeState, event: Generated | Verified | Said | Shared | Sampled | Learned, at: float
) -> NodeState:
    change = msgspec.structs.replace
    match event:
        case Generated():
            return change(
                node,
                phase="verify",
                tokens_generated=node.tokens_generated + event.tokens,
                seconds_generating=node.seconds_generating + event.seconds,
            )
        case Verified():
            return change(
                node,
                phase="share",
                own=node.own.with_point(node.round, event.reward),
                own_by_source=_curves(node.own_by_source, node.round, event.by_source),
            )
        case Said():
            quote = Quote(node.round, event)
            earned = event.reward > 0 and event.author == node.author
            rewarded = _newest(node.rewarded, quote) if earned else node.rewarded
            return change(node, quotes=_newest(node.quotes, quote), rewarded=rewarded)
        case Shared():
            return change(
                node,
                phase="sample",
                groups_shared=node.groups_shared + event.groups,
                bytes_shared=node.bytes_shared + event.bytes,
            )
        case Sampled():
            return change(
                node,
                phase="learn",
                heard=node.heard + event.heard,
                dropped=node.dropped + event.dropped,
                listening=event.listening,
                refused_of=_refused_of(node.refused_of, event.refused_of),
                taken=_summed((node.taken, event.by_author)),
                given=_added(node.given, event.given),
                useful=_added(node.useful, event.useful),
                taken_by_round=(*node.taken_by_round, event.by_author)[-RECENT_ROUNDS:],
                pool=event.pool,
                peers=event.peers,
                refused=_counted(node.refused, event.refused),
                refusals=_refusals(node.refusals, node.round, event.refused),
            )
        case Learned():
            took = None if node.learned_at is None else max(0.0, at - node.learned_at)
            pace = node.round_seconds if took is None else node.round_seconds.with_point(node.round, took)
            return change(
                node,
                phase="generate",
                round_seconds=pace,
                learned_at=at,
                skipped_steps=node.skipped_steps + event.skipped,
                grad_norm=node.grad_norm.with_point(node.round, event.grad_norm),
                kl=node.kl.with_point(node.round, event.kl),
                trained=node.trained.with_point(node.round, event.reward),
                tokens_trained=node.tokens_trained + event.tokens,
                seconds_learning=node.seconds_learning + event.seconds,
            )


def _told_of_peers(node: NodeState, event: Met | Parted, at: float) -> NodeState:
    kept = {author: met for author, met in node.met.items() if author != event.author}
    match event:
        case Met():
            # The oldest of too many goes: a view shows neighbours, not a census.
            met = dict([*kept.items(), (event.author, Neighbour(event, at))][-MET_LIMIT:])
            return msgspec.structs.replace(node, met=met)
        case Parted():
            return msgspec.structs.replace(node, met=kept, parted=_summed((node.parted, {event.why: 1})))


def _newest(quotes: tuple[Quote, ...], quote: Quote) -> tuple[Quote, ...]:
    return (*quotes, quote)[-QUOTES_LIMIT:]


def _curves(curves: Mapping[str, Curve], round_: int, values: Mapping[str, float]) -> Mapping[str, Curve]:
    if not values:
        return curves
    known = dict(curves)
    for name, value in values.items():
        if name in known or len(known) < SOURCES_LIMIT:
            known[name] = known.get(name, SMALL_CURVE).with_point(round_, value)
    return known


def _refusals(curves: Mapping[str, Curve], round_: int, refused: Mapping[str, int]) -> Mapping[str, Curve]:
    """Every reason that is known gets a point a round, 0 where nothing was refused for it."""
    counted = _counted(dict.fromkeys(curves, 0), refused)
    return {
        reason: curves.get(reason, SMALL_CURVE).with_point(round_, count) for reason, count in counted.items()
    }


def _counted(before: Mapping[str, int], new: Mapping[str, int]) -> Mapping[str, int]:
    """Reasons beyond the limit are counted as one."""
    total = Counter(before)
    for reason, count in new.items():
        total[reason if reason in total or len(total) < REASONS_LIMIT else OTHER_REASONS] += count
    return total


def _summed(counts: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    # By hand: a crowd's counts are summed at every look, and Counter.update takes thrice as long.
    total: dict[str, int] = {}
    for count in counts:
        for name, number in count.items():
            total[name] = total.get(name, 0) + number
    return total


def _added(before: Mapping[str, N], new: Mapping[str, N]) -> Mapping[str, N]:
    """By author: of too many, those who came first."""
    total = dict(before)
    for author, amount in new.items():
        if author in total or len(total) < BLAMED_LIMIT:
            total[author] = total[author] + amount if author in total else amount
    return total


def _refused_of(
    before: Mapping[str, Mapping[str, int]], new: Mapping[str, Mapping[str, int]]
) -> Mapping[str, Mapping[str, int]]:
    total = dict(before)
    for author, reasons in new.items():
        if author in total or len(total) < BLAMED_LIMIT:
            total[author] = _summed((total.get(author, {}), reasons))
    return total
