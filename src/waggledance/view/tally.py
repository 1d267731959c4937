"""The tally: a run's state as the few numbers that a table, a headline or a verdict needs.

Own, trained and held-out reward are never mixed. A spread is over nodes: how far one node may be from the
mean, not how sure the mean is; that takes several seeds.
"""

import math
from collections.abc import Callable, Iterable, Mapping

import msgspec

from waggledance.rollout import name_of
from waggledance.view.curve import Curve, Point, mean_over, smoothed
from waggledance.view.state import NodeState, SwarmState

Measure = Callable[[NodeState], float | None]


class Spread(msgspec.Struct, frozen=True):
    mean: float
    deviation: float
    """The sample standard deviation over nodes; 0 for a single one."""
    low: float
    high: float
    nodes: int


class Tally(msgspec.Struct, frozen=True):
    nodes: int
    rounds: int
    own: Spread | None
    """Mean own reward over the rounds."""
    trained: Spread | None
    heldout_start: Spread | None
    heldout: Spread | None
    cumulative: Spread | None
    """Own reward summed over the rounds."""
    tokens_generated: int
    tokens_trained: int
    groups_shared: int
    bytes_shared: int
    refused: Mapping[str, int]


class Progress(msgspec.Struct, frozen=True):
    round: int
    rounds: int
    fraction: float
    """Of all rounds of all nodes of all swarms."""
    ended: bool
    """Whether every node said so: after its last round a node still learns, measures and saves."""


def own(node: NodeState) -> float | None:
    return node.own.mean


def trained(node: NodeState) -> float | None:
    return node.trained.mean


def heldout(node: NodeState) -> float | None:
    """The newest measurement after the first: a node measured once has a start and no gain yet."""
    return node.heldout.newest[1] if node.heldout.newest and node.evaluations > 1 else None


def cumulative(node: NodeState) -> float | None:
    return node.own.total if node.own.rounds else None


def spread(values: Iterable[float | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    mean = math.fsum(known) / len(known)
    squares = math.fsum((value - mean) ** 2 for value in known)
    deviation = math.sqrt(squares / (len(known) - 1)) if len(known) > 1 else 0.0
    return Spread(mean, deviation, min(known), max(known), len(known))


def wilson(share: float, count: int) -> tuple[float, float]:
    """The 95 % interval of a share of `count` independent answers."""
    z = 1.959964
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return max(0.0, middle - half), min(1.0, middle + half)


def tally(swarm: SwarmState) -> Tally:
    nodes = swarm.in_order
    refused: dict[str, int] = {}
    for node in nodes:
        for reason, count in node.refused.items():
            refused[reason] = refused.get(reason, 0) + count
    return Tally(
        nodes=len(nodes),
        rounds=max((node.own.rounds for node in nodes), default=0),
        own=spread(map(own, nodes)),
        trained=spread(map(trained, nodes)),
        heldout_start=spread(node.heldout_start for node in nodes),
        heldout=spread(map(heldout, nodes)),
        cumulative=spread(map(cumulative, nodes)),
        tokens_generated=sum(node.tokens_generated for node in nodes),
        tokens_trained=sum(node.tokens_trained for node in nodes),
        groups_shared=sum(node.groups_shared for node in nodes),
        bytes_shared=sum(node.bytes_shared for node in nodes),
        refused=refused,
    )


def gain(silo: SwarmState, swarm: SwarmState, measure: Measure) -> Spread | None:
    """What each node has more in the swarm than its twin of the same name has in silo."""
    differences: list[float] = []
    twins = {name_of(author): node for author, node in silo.nodes.items()}
    for author, node in swarm.nodes.items():
        twin = twins.get(name_of(author))
        alone, together = measure(twin) if twin else None, measure(node)
        if alone is not None and together is not None:
            differences.append(together - alone)
    return spread(differences)


def progress(swarms: Iterable[SwarmState]) -> Progress:
    """A swarm that has not started yet is taken to be as large as the largest."""
    states = list(swarms)
    nodes = [node for state in states for node in state.nodes.values()]
    rounds = max((node.rounds for node in nodes), default=0)
    planned = rounds * max((len(state.nodes) for state in states), default=0) * len(states)
    if not planned:
        return Progress(0, rounds, 0.0, ended=False)
    done = sum(rounds if node.ended else min(rounds, node.own.rounds) for node in nodes)
    ended = all(node.ended for node in nodes) and all(state.nodes for state in states)
    return Progress(rounds * done // planned, rounds, done / planned, ended)


def seconds_since_start(swarms: Iterable[SwarmState], now: float) -> float:
    """By the nodes' clocks; of a run that has ended, how long it took."""
    states = list(swarms)
    nodes = [node for state in states for node in state.nodes.values()]
    starts = [node.started_at for node in nodes if node.started_at is not None]
    if not starts:
        return 0.0
    end = max(node.seen_at for node in nodes) if progress(states).ended else now
    return max(0.0, end - min(starts))


def seconds_of_silence(swarms: Iterable[SwarmState], now: float) -> float:
    """Since any node told anything."""
    seen = [node.seen_at for state in swarms for node in state.nodes.values()]
    return max(0.0, now - max(seen)) if seen else 0.0


def own_curves(swarm: SwarmState, smoothing: int) -> list[list[Point]]:
    return [_smooth(node.own, smoothing) for node in swarm.in_order if node.own.points]


def mean_own_curve(swarm: SwarmState, smoothing: int) -> list[Point]:
    return mean_over(own_curves(swarm, smoothing))


def _smooth(curve: Curve, rounds: int) -> list[Point]:
    return smoothed(curve.points, max(1, rounds // curve.stride))
