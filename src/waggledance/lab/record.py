"""Records: what happened to a trial's nodes, and the result that it comes to.

Events come in, as a node's journal tells them; numbers go out. Own, trained and held-out reward are kept
apart, and so are the costs.
"""

import math
from collections.abc import Iterable, Sequence
from statistics import fmean, pstdev

import msgspec

from waggledance.events import Entry, Evaluated, Generated, Learned, Sampled, Shared, Verified
from waggledance.view.curve import smoothing_rounds

POINTS = 200
"""A curve in a result has at most about so many: more cannot be seen and would fill the repository."""
LAST_SHARE = 0.45
"""The paper's oscillation is over the last 900 of 2,000 rounds."""
FINAL_SHARE = 0.1


class Reward(msgspec.Struct, frozen=True):
    """Own or trained reward; means over nodes."""

    cumulative: float
    """Summed over the rounds, per node."""
    mean: float
    final: float
    """Over the last tenth of the rounds."""


class Heldout(msgspec.Struct, frozen=True):
    start: float
    final: float
    best: float
    by_source: dict[str, float]
    """At the end."""
    forgetting: float
    """From a source's best measurement to its last; mean over sources and nodes."""
    rounds: list[int]
    curve: list[float]


class Cost(msgspec.Struct, frozen=True):
    """Of all nodes together."""

    tokens_generated: int
    tokens_trained: int
    bytes_shared: int
    seconds_generating: float
    seconds_learning: float


class TrialResult(msgspec.Struct, frozen=True):
    configuration: str
    seed: int
    nodes: int
    rounds: int
    own: Reward
    trained: Reward
    heldout: Heldout
    cost: Cost
    generated_curve: list[int]
    """Tokens generated until each held-out measurement."""
    trained_curve: list[int]
    """Tokens trained on until each held-out measurement."""
    oscillation: float
    """The standard deviation of the smoothed own curve, over the last part of the rounds."""
    oscillation_trained: float
    informative: float
    """The share of own groups whose rewards differed."""
    foreign: float
    """Foreign groups trained on, per node-round."""
    stride: int
    """Rounds to one point of the curves below."""
    own_curves: list[list[float]]
    """Of every node."""
    trained_curve_mean: list[float]


class NodeRecord:
    def __init__(self) -> None:
        self.own: list[float] = []
        self.trained: list[float] = []
        self.heldout: list[Evaluated] = []
        self.heldout_at: list[tuple[int, int, int]] = []
        """Round, tokens generated and tokens trained on at each measurement."""
        self.tokens_generated = self.tokens_trained = self.bytes_shared = 0
        self.seconds_generating = self.seconds_learning = 0.0
        self.informative = self.groups = self.foreign = 0

    def fold(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            match entry.event:
                case Generated() as event:
                    self.tokens_generated += event.tokens
                    self.seconds_generating += event.seconds
                    self.groups += event.groups
                case Verified() as event:
                    self.own.append(event.reward)
                    self.informative += event.informative
                case Shared() as event:
                    self.bytes_shared += event.bytes
                case Sampled() as event:
                    self.foreign += event.foreign
                case Learned() as event:
                    self.trained.append(event.reward)
                    self.tokens_trained += event.tokens
                    self.seconds_learning += event.seconds
                case Evaluated() as event:
                    self.heldout.append(event)
                    self.heldout_at.append((entry.round, self.tokens_generated, self.tokens_trained))
                case _:
                    pass


def result_of(configuration: str, seed: int, rounds: int, nodes: Sequence[NodeRecord]) -> TrialResult:
    stride = max(1, math.ceil(rounds / POINTS))
    own, trained = _mean_curve([node.own for node in nodes]), _mean_curve([node.trained for node in nodes])
    return TrialResult(
        configuration=configuration,
        seed=seed,
        nodes=len(nodes),
        rounds=rounds,
        own=_reward([node.own for node in nodes]),
        trained=_reward([node.trained for node in nodes]),
        heldout=_heldout(nodes),
        cost=Cost(
            tokens_generated=sum(node.tokens_generated for node in nodes),
            tokens_trained=sum(node.tokens_trained for node in nodes),
            bytes_shared=sum(node.bytes_shared for node in nodes),
            seconds_generating=round(sum(node.seconds_generating for node in nodes), 2),
            seconds_learning=round(sum(node.seconds_learning for node in nodes), 2),
        ),
        generated_curve=[sum(at[1] for at in ats) for ats in _measurements(nodes)],
        trained_curve=[sum(at[2] for at in ats) for ats in _measurements(nodes)],
        oscillation=_oscillation(own, rounds),
        oscillation_trained=_oscillation(trained, rounds),
        informative=sum(node.informative for node in nodes) / max(1, sum(node.groups for node in nodes)),
        foreign=sum(node.foreign for node in nodes) / max(1, sum(len(node.own) for node in nodes)),
        stride=stride,
        own_curves=[_thinned(node.own, stride) for node in nodes],
        trained_curve_mean=_thinned(trained, stride),
    )


def _reward(curves: Sequence[Sequence[float]]) -> Reward:
    known = [curve for curve in curves if curve]
    tails = [curve[-max(1, round(len(curve) * FINAL_SHARE)) :] for curve in known]
    return Reward(
        cumulative=fmean(map(math.fsum, known)) if known else 0.0,
        mean=fmean(map(fmean, known)) if known else 0.0,
        final=fmean(map(fmean, tails)) if tails else 0.0,
    )


def _heldout(nodes: Sequence[NodeRecord]) -> Heldout:
    measured = [node.heldout for node in nodes if node.heldout]
    if not measured:
        return Heldout(0.0, 0.0, 0.0, {}, 0.0, [], [])
    curve = [fmean(event.reward for event in events) for events in zip(*measured, strict=True)]
    drops = [
        max(event.by_source[source] for event in events) - events[-1].by_source[source]
        for events in measured
        for source in events[-1].by_source
    ]
    names = sorted({source for events in measured for source in events[-1].by_source})
    by_source = {
        name: fmean(events[-1].by_source[name] for events in measured if name in events[-1].by_source)
        for name in names
    }
    rounds = [ats[0][0] for ats in _measurements(nodes)]
    return Heldout(
        start=curve[0],
        final=curve[-1],
        best=max(curve),
        by_source=by_source,
        forgetting=fmean(drops) if drops else 0.0,
        rounds=rounds,
        curve=[round(value, 5) for value in curve],
    )


def _measurements(nodes: Sequence[NodeRecord]) -> list[tuple[tuple[int, int, int], ...]]:
    return list(zip(*(node.heldout_at for node in nodes), strict=True))


def _mean_curve(curves: Sequence[Sequence[float]]) -> list[float]:
    """As far as the shortest goes: a slow node has fewer rounds."""
    return [fmean(values) for values in zip(*curves, strict=False)]


def _oscillation(curve: Sequence[float], rounds: int) -> float:
    smoothing = smoothing_rounds(rounds)
    sums = [0.0]
    for value in curve:
        sums.append(sums[-1] + value)
    smooth = [(sums[k] - sums[k - smoothing]) / smoothing for k in range(smoothing, len(sums))]
    last = smooth[-max(1, round(len(curve) * LAST_SHARE)) :]
    return pstdev(last) if len(last) > 1 else 0.0


def _thinned(curve: Sequence[float], stride: int) -> list[float]:
    return [round(fmean(curve[start : start + stride]), 5) for start in range(0, len(curve), stride)]
