"""The scene: what the page shows, in parts that change apart from each other, each one JSON object.

States and times in, parts out: bounded however many nodes and rounds there are, every text of a peer made
plain. Knows nothing of HTTP; says nothing of how a part is drawn.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from waggledance.rollout import Author, name_of
from waggledance.view import tally
from waggledance.view.curve import Curve, Point, mean_over, smoothed, smoothing_rounds
from waggledance.view.state import NodeState, Saying, SwarmState
from waggledance.view.text import plain, plain_lines
from waggledance.view.words import PHASES, reason_words, verdict

Swarms = Mapping[str, SwarmState]

POINTS_LIMIT = 300
"""Of a line: more than a screen's pixels tell apart."""
SMALL_POINTS_LIMIT = 60
NODES_LIMIT = 500
GRAPH_LIMIT = 32
EDGES_LIMIT = 400
LEDGER_LIMIT = 500
TASKS_LIMIT = 48
TROUBLES_LIMIT = 5
NAME, TEXT, LINES = 40, 1200, 40

_NOTHING: Counter[str] = Counter()


class Line(msgspec.Struct, frozen=True):
    """One line of a chart, and the lowest and highest node at each of its points."""

    name: str
    x: tuple[int, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


class Head(msgspec.Struct, frozen=True):
    run: str
    labels: tuple[str, ...]
    nodes: int
    round: int
    rounds: int
    fraction: float
    ended: bool
    elapsed_seconds: int
    left_seconds: int | None
    silent_seconds: int
    phase: str
    verdict: str
    failed: tuple[str, ...]
    version: str


class Rewards(msgspec.Struct, frozen=True):
    smoothing: int
    rounds: int
    own: tuple[Line, ...]
    trained: tuple[Line, ...]
    heldout: tuple[Line, ...]


class Holding(msgspec.Struct, frozen=True):
    """Held-out reward of a swarm's nodes, before and now."""

    label: str
    before: float | None
    now: float | None
    befores: tuple[float, ...]
    nows: tuple[float, ...]


class TaskLines(msgspec.Struct, frozen=True):
    source: str
    lines: tuple[Line, ...]
    newest: tuple[float | None, ...]
    """By label."""
    heldout: float | None
    """Of the last label, the newest."""


class NodeLine(msgspec.Struct, frozen=True):
    label: str
    author: str
    name: str
    model: str
    phase: str
    round: int
    rounds: int
    own: float | None
    heldout_start: float | None
    heldout: float | None
    took: int
    gave: int
    seconds: float | None
    tokens_per_second: float | None
    memory_bytes: int
    error: str | None


class Graph(msgspec.Struct, frozen=True):
    names: tuple[str, ...]
    given: tuple[int, ...]
    edges: tuple[tuple[int, int, float], ...]
    """From whom, to whom, and the share of what the taker took lately."""
    left_out: int


class Account(msgspec.Struct, frozen=True):
    """One author as the nodes that are watched know it."""

    author: str
    name: str
    here: bool
    model: str
    taken: int
    share: float
    refused: dict[str, int]


class Reason(msgspec.Struct, frozen=True):
    reason: str
    words: str
    total: int
    line: Line


class Effort(msgspec.Struct, frozen=True):
    seconds: tuple[Line, ...]
    grad_norm: tuple[Line, ...]
    tokens_generated: int
    tokens_trained: int
    bytes_shared: int
    groups_shared: int
    memory_bytes: int
    cpu_seconds: float
    heard: int
    dropped: int


class Told(msgspec.Struct, frozen=True):
    """A saying, plain."""

    label: str
    serial: int
    round: int
    author: str
    teller: str
    source: str
    question: str
    text: str
    reward: float


Part = (
    Head
    | Rewards
    | tuple[Holding, ...]
    | tuple[TaskLines, ...]
    | tuple[NodeLine, ...]
    | Graph
    | tuple[Account, ...]
    | tuple[Reason, ...]
    | Effort
)


def scene(
    run: str,
    swarms: Swarms,
    elapsed_seconds: float,
    left_seconds: float | None = None,
    silent_seconds: float = 0.0,
) -> dict[str, Part]:
    """By the part's name. What was said is asked for apart: it is long, and only ever grows."""
    return {
        "head": head(run, swarms, elapsed_seconds, left_seconds, silent_seconds),
        "rewards": rewards(swarms),
        "holding": holding(swarms),
        "tasks": tasks(swarms),
        "nodes": nodes(swarms),
        "graph": graph(_last(swarms)),
        "ledger": ledger(_last(swarms)),
        "refusals": refusals(_last(swarms)),
        "effort": effort(swarms),
    }


def head(
    run: str, swarms: Swarms, elapsed_seconds: float, left_seconds: float | None, silent_seconds: float
) -> Head:
    now = tally.progress(swarms.values())
    nodes_ = _all_nodes(swarms)
    if left_seconds is None and 0.0 < now.fraction < 1.0:
        left_seconds = elapsed_seconds * (1.0 - now.fraction) / now.fraction
    alone = nodes_[0][1] if len(nodes_) == 1 else None
    return Head(
        run=plain(run, NAME),
        labels=tuple(plain(label, NAME) for label in swarms),
        nodes=len(nodes_),
        round=now.round,
        rounds=now.rounds,
        fraction=round(now.fraction, 4),
        ended=now.ended,
        elapsed_seconds=round(elapsed_seconds),
        left_seconds=None if left_seconds is None or now.ended else round(left_seconds),
        # By tens: a part that changed is sent again.
        silent_seconds=round(silent_seconds / 10) * 10,
        phase=PHASES[alone.phase] if alone else "",
        verdict=verdict(swarms),
        failed=_troubles(nodes_)[:TROUBLES_LIMIT],
        version=next((plain(node.started.version, NAME) for _, node in nodes_ if node.started), ""),
    )


def _troubles(nodes_: Sequence[tuple[str, NodeState]]) -> tuple[str, ...]:
    """What somebody should look after, a line each: failed first, then stuck, then not saved."""
    kinds: tuple[tuple[str, Callable[[NodeState], str | None]], ...] = (
        ("failed", lambda node: node.error),
        ("is stuck", lambda node: node.stuck),
        ("cannot save", lambda node: node.unsaved),
    )
    return tuple(
        f"{plain(label, NAME)} {plain(name_of(node.author), NAME)} {what}: {plain(words, 300)}"
        for what, told in kinds
        for label, node in nodes_
        if (words := told(node)) is not None
    )


def rewards(swarms: Swarms) -> Rewards:
    rounds = tally.progress(swarms.values()).rounds
    smoothing = smoothing_rounds(rounds)
    return Rewards(
        smoothing=smoothing,
        rounds=rounds,
        own=_lines(swarms, lambda node: node.own, smoothing),
        trained=_lines(swarms, lambda node: node.trained, smoothing),
        heldout=_lines(swarms, lambda node: node.heldout, 1),
    )


def holding(swarms: Swarms) -> tuple[Holding, ...]:
    told: list[Holding] = []
    for label, swarm in swarms.items():
        befores = [node.heldout_start for node in swarm.in_order if node.heldout_start is not None]
        nows = [value for value in map(tally.heldout, swarm.in_order) if value is not None]
        before, now = tally.spread(befores), tally.spread(nows)
        told.append(
            Holding(
                plain(label, NAME),
                before.mean if before else None,
                now.mean if now else None,
                tuple(befores[:NODES_LIMIT]),
                tuple(nows[:NODES_LIMIT]),
            )
        )
    return tuple(told)


def tasks(swarms: Swarms) -> tuple[TaskLines, ...]:
    """Own reward by task source, the mean over nodes that drew it."""
    sources = sorted({source for _, node in _all_nodes(swarms) for source in node.own_by_source})
    smoothing = 2 * smoothing_rounds(tally.progress(swarms.values()).rounds)
    told: list[TaskLines] = []
    for source in sources[:TASKS_LIMIT]:
        lines = tuple(_task_line(label, swarm, source, smoothing) for label, swarm in swarms.items())
        newest = tuple(line.y[-1] if line.y else None for line in lines)
        told.append(TaskLines(plain(source, NAME), lines, newest, _heldout_of(_last(swarms), source)))
    return tuple(told)


def nodes(swarms: Swarms) -> tuple[NodeLine, ...]:
    return tuple(_node_line(label, node) for label, node in _all_nodes(swarms)[:NODES_LIMIT])


def graph(swarm: SwarmState) -> Graph:
    """The nodes that give and take most, and the strongest of their ties."""
    taken = {node.author: node.taken_recently for node in swarm.nodes.values() if node.taken_by_round}
    weights: Counter[str] = Counter()
    given: Counter[str] = Counter()
    for taker, counts in taken.items():
        given.update(counts)
        weights.update(counts)
        weights[taker] += sum(counts.values())
    shown = [name for name, _ in weights.most_common(GRAPH_LIMIT)]
    shown.sort(key=lambda name: (len(name), name))
    place = {name: number for number, name in enumerate(shown)}
    edges = [
        (place[giver], place[taker], round(count / max(1, sum(counts.values())), 3))
        for taker, counts in taken.items()
        if taker in place
        for giver, count in counts.items()
        if giver in place and giver != taker
    ]
    edges.sort(key=lambda edge: -edge[2])
    return Graph(
        names=tuple(plain(name_of(Author(name)), 16) for name in shown),
        given=tuple(given[name] for name in shown),
        edges=tuple(edges[:EDGES_LIMIT]),
        left_out=len(weights) - len(shown),
    )


def ledger(swarm: SwarmState) -> tuple[Account, ...]:
    """Every author that was met, taken from or refused, the most useful first."""
    taken, refused = _sums(swarm)
    here = {author: near.met for node in swarm.nodes.values() for author, near in node.met.items()}
    authors = {*taken, *refused, *here}
    whole = max(1, sum(taken.values()))
    ordered = sorted(authors, key=lambda author: (-taken[author], len(author), author))
    return tuple(
        Account(
            author=plain(author, 80),
            name=plain(name_of(Author(author)), NAME),
            here=author in here,
            model=plain(here[Author(author)].model, NAME) if author in here else "",
            taken=taken[author],
            share=round(taken[author] / whole, 4),
            refused={
                plain(reason, 20): count for reason, count in refused.get(author, Counter[str]()).items()
            },
        )
        for author in ordered[:LEDGER_LIMIT]
    )


def refusals(swarm: SwarmState) -> tuple[Reason, ...]:
    """How many a round, over all nodes, by reason; the most frequent first."""
    totals: Counter[str] = Counter()
    by_round: dict[str, dict[int, float]] = {}
    for node in swarm.nodes.values():
        totals.update(node.refused)
        for reason, curve in node.refusals.items():
            counts = by_round.setdefault(reason, {})
            for round_, count in curve.points:
                counts[round_] = counts.get(round_, 0.0) + count
    lines = {reason: _thin(sorted(counts.items()), POINTS_LIMIT) for reason, counts in by_round.items()}
    return tuple(
        Reason(plain(reason, 20), reason_words(reason), count, _line(plain(reason, NAME), lines[reason]))
        for reason, count in totals.most_common()
        if reason in lines and count
    )


def effort(swarms: Swarms) -> Effort:
    nodes_ = [node for _, node in _all_nodes(swarms)]
    smoothing = smoothing_rounds(tally.progress(swarms.values()).rounds)
    return Effort(
        seconds=_lines(swarms, lambda node: node.round_seconds, smoothing),
        grad_norm=_lines(swarms, lambda node: node.grad_norm, smoothing),
        tokens_generated=sum(node.tokens_generated for node in nodes_),
        tokens_trained=sum(node.tokens_trained for node in nodes_),
        bytes_shared=sum(node.bytes_shared for node in nodes_),
        groups_shared=sum(node.groups_shared for node in nodes_),
        memory_bytes=sum(node.memory_bytes for node in nodes_),
        cpu_seconds=round(sum(node.cpu_seconds for node in nodes_), 1),
        heard=sum(node.heard for node in nodes_),
        dropped=sum(node.dropped for node in nodes_),
    )


def told_since(swarms: Swarms, since: Mapping[str, int]) -> tuple[Told, ...]:
    """What was said that a reader who knows `since` sayings of each label does not know yet."""
    return tuple(
        _told(label, saying)
        for label, swarm in swarms.items()
        for saying in swarm.said
        if saying.serial >= since.get(label, 0)
    )


def _told(label: str, saying: Saying) -> Told:
    said = saying.said
    return Told(
        label=plain(label, NAME),
        serial=saying.serial,
        round=saying.round,
        author=plain(name_of(said.author), NAME),
        teller=plain(name_of(saying.teller), NAME),
        source=plain(said.source, NAME),
        question=plain_lines(said.question, TEXT, LINES),
        text=plain_lines(said.text, TEXT, LINES),
        reward=round(said.reward, 4),
    )


def _last(swarms: Swarms) -> SwarmState:
    return list(swarms.values())[-1] if swarms else SwarmState()


def _all_nodes(swarms: Swarms) -> list[tuple[str, NodeState]]:
    return [(label, node) for label, swarm in swarms.items() for node in swarm.in_order]


def _lines(swarms: Swarms, curve: Callable[[NodeState], Curve], smoothing: int) -> tuple[Line, ...]:
    return tuple(
        _banded(plain(label, NAME), [_smooth(curve(node), smoothing) for node in swarm.in_order])
        for label, swarm in swarms.items()
    )


def _smooth(curve: Curve, rounds: int) -> list[Point]:
    return smoothed(curve.points, max(1, rounds // curve.stride))


def _banded(name: str, curves: Sequence[Sequence[Point]]) -> Line:
    drawn = [points for points in curves if points]
    mean = _thin(mean_over(drawn), POINTS_LIMIT)
    if len(drawn) < 2:
        return _line(name, mean)
    wanted = {round_ for round_, _ in mean}
    low: dict[int, float] = {}
    high: dict[int, float] = {}
    for points in drawn:
        for round_, value in points:
            if round_ in wanted:
                low[round_] = min(value, low.get(round_, value))
                high[round_] = max(value, high.get(round_, value))
    line = _line(name, mean)
    lows, highs = _rounded(low[x] for x in line.x), _rounded(high[x] for x in line.x)
    return msgspec.structs.replace(line, low=lows, high=highs)


def _task_line(label: str, swarm: SwarmState, source: str, smoothing: int) -> Line:
    """All nodes' points in one: a node draws a source only now and then."""
    told: dict[int, list[float]] = {}
    for node in swarm.nodes.values():
        if source in node.own_by_source:
            for round_, value in node.own_by_source[source].points:
                told.setdefault(round_, []).append(value)
    points = [(round_, sum(told[round_]) / len(told[round_])) for round_ in sorted(told)]
    return _line(plain(label, NAME), _thin(smoothed(points, smoothing), SMALL_POINTS_LIMIT))


def _heldout_of(swarm: SwarmState, source: str) -> float | None:
    curves = [node.heldout_by_source.get(source) for node in swarm.nodes.values()]
    newest = [curve.newest[1] for curve in curves if curve is not None and curve.newest]
    return sum(newest) / len(newest) if newest else None


def _line(name: str, points: Sequence[Point]) -> Line:
    return Line(name, tuple(round_ for round_, _ in points), _rounded(value for _, value in points))


def _rounded(values: Iterable[float]) -> tuple[float, ...]:
    return tuple(round(value, 5) for value in values)


def _thin(points: Sequence[Point], limit: int) -> list[Point]:
    """Every n-th, the last among them."""
    step = -(-len(points) // limit) if points else 1
    return list(points[(len(points) - 1) % step :: step])


def _node_line(label: str, node: NodeState) -> NodeLine:
    generating = node.seconds_generating
    return NodeLine(
        label=plain(label, NAME),
        author=plain(node.author, 80),
        name=plain(name_of(node.author), NAME),
        model=plain(node.model, NAME),
        phase=PHASES[node.phase],
        round=node.round,
        rounds=node.rounds,
        own=node.own.recent(smoothing_rounds(node.rounds)),
        heldout_start=node.heldout_start,
        heldout=tally.heldout(node),
        took=sum(node.taken.values()),
        gave=node.groups_shared,
        seconds=node.round_seconds.recent(10),
        tokens_per_second=node.tokens_generated / generating if generating > 0 else None,
        memory_bytes=node.memory_bytes,
        error=None if node.error is None else plain(node.error, 300),
    )


def _sums(swarm: SwarmState) -> tuple[Counter[str], dict[str, Counter[str]]]:
    taken: Counter[str] = Counter()
    refused: dict[str, Counter[str]] = {}
    for node in swarm.nodes.values():
        taken.update(node.taken)
        for author, reasons in node.refused_of.items():
            refused.setdefault(author, Counter()).update(reasons)
    return taken, refused
