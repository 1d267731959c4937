"""A curve: one number per round, kept for ever in bounded space.

Measurements come in, points (round, mean) go out. A full curve merges its neighbours in pairs, so a week's
run costs what a long afternoon's does; the paper's 2,000 rounds stay exact. Knows nothing of events.
"""

from collections.abc import Iterable, Sequence

import msgspec

Point = tuple[int, float]

POINTS_LIMIT = 2048


class Curve(msgspec.Struct, frozen=True):
    points: tuple[Point, ...] = ()
    """Each the last of `stride` rounds and the mean over them."""
    stride: int = 1
    pending: tuple[float, ...] = ()
    """Newest measurements that do not fill a point yet."""
    newest: Point | None = None
    limit: int = POINTS_LIMIT
    """Points it may have before neighbours merge; even."""

    def with_point(self, round_: int, value: float) -> "Curve":
        """A round that is told again replaces itself and all after it: the node went back to a checkpoint."""
        kept = self if self.newest is None or round_ > self.newest[0] else self._before(round_)
        pending = (*kept.pending, value)
        if len(pending) < kept.stride:
            return Curve(kept.points, kept.stride, pending, (round_, value), self.limit)
        points = (*kept.points, (round_, sum(pending) / len(pending)))
        if len(points) < self.limit:
            return Curve(points, kept.stride, (), (round_, value), self.limit)
        return Curve(_merged_in_pairs(points), kept.stride * 2, (), (round_, value), self.limit)

    def _before(self, round_: int) -> "Curve":
        points = tuple(point for point in self.points if point[0] < round_)
        return Curve(points, self.stride, (), points[-1] if points else None, self.limit)

    @property
    def rounds(self) -> int:
        return len(self.points) * self.stride + len(self.pending)

    @property
    def total(self) -> float:
        return sum(value for _, value in self.points) * self.stride + sum(self.pending)

    @property
    def mean(self) -> float | None:
        return self.total / self.rounds if self.rounds else None

    def recent(self, rounds: int) -> float | None:
        """The mean over about the newest `rounds` rounds."""
        if not self.points:
            return sum(self.pending) / len(self.pending) if self.pending else None
        newest = self.points[-max(1, rounds // self.stride) :]
        return sum([value for _, value in newest]) / len(newest)


def _merged_in_pairs(points: Sequence[Point]) -> tuple[Point, ...]:
    pairs = zip(points[::2], points[1::2], strict=True)
    return tuple((later[0], (earlier[1] + later[1]) / 2) for earlier, later in pairs)


def smoothing_rounds(rounds: int) -> int:
    """How many rounds a moving average spans: the paper's 100 for a long run, fewer for a short one."""
    return max(1, min(100, rounds // 12))


def smoothed(points: Sequence[Point], rounds: int) -> list[Point]:
    """A moving average over the newest `rounds` points.

    It starts where half of them are there: over fewer, one lucky first answer towers over the whole curve.
    """
    averages: list[Point] = []
    window_sum = 0.0
    for place, (round_, value) in enumerate(points):
        window_sum += value
        if place >= rounds:
            window_sum -= points[place - rounds][1]
        if 2 * (place + 1) >= rounds:
            averages.append((round_, max(0.0, window_sum) / min(place + 1, rounds)))
    return averages


def cumulative(curve: Curve) -> list[Point]:
    sums: list[Point] = []
    running = 0.0
    for round_, value in curve.points:
        running += value * curve.stride
        sums.append((round_, running))
    return sums


def mean_over(curves: Iterable[Sequence[Point]]) -> list[Point]:
    """The mean at every round that at least half of the curves have: nodes do not wait for each other."""
    told: dict[int, list[float]] = {}
    count = 0
    for points in curves:
        count += 1
        for round_, value in points:
            told.setdefault(round_, []).append(value)
    return [
        (round_, sum(told[round_]) / len(told[round_]))
        for round_ in sorted(told)
        if len(told[round_]) * 2 >= count
    ]
