"""Intervals: how sure a difference between two groups of runs is.

Pairs of numbers come in, one pair a seed; the gain, its 95 % bootstrap interval over the pairs and an effect
size go out. The draws are seeded: the same numbers give the same interval.
"""

from collections.abc import Sequence
from statistics import fmean, stdev

import msgspec
import numpy as np

RESAMPLES = 10_000
LEVEL = 0.95
NOTHING = 1e-9
"""There is no gain over less than this."""
_SEED = 20250908


class Difference(msgspec.Struct, frozen=True):
    """Of what is looked at to what it is held against."""

    pairs: int
    before: float
    """The mean of what it is held against."""
    after: float
    gain: float | None
    """(after - before) / before; None where before is 0."""
    low: float | None
    high: float | None
    """The gain's 95 % interval; None for fewer than two pairs."""
    difference: float
    difference_low: float | None
    difference_high: float | None
    effect: float | None
    """The mean of the differences in standard deviations of them (Cohen's d for pairs)."""
    ahead: int
    """Pairs in which it is the larger one."""


def compare(before: Sequence[float], after: Sequence[float]) -> Difference:
    assert len(before) == len(after) > 0, "pairs are compared"
    differences = [b - a for a, b in zip(before, after, strict=True)]
    base, mean = fmean(before), fmean(after)
    gains, spreads = _resampled(before, after)
    low, high = _interval(gains)
    difference_low, difference_high = _interval(spreads)
    spread = stdev(differences) if len(differences) > 1 else 0.0
    return Difference(
        pairs=len(before),
        before=base,
        after=mean,
        gain=mean / base - 1 if base > NOTHING else None,
        low=low,
        high=high,
        difference=mean - base,
        difference_low=difference_low,
        difference_high=difference_high,
        effect=fmean(differences) / spread if spread else None,
        ahead=sum(difference > 0 for difference in differences),
    )


def _resampled(before: Sequence[float], after: Sequence[float]) -> tuple[list[float], list[float]]:
    """Gains, where there is one, and differences of the means over drawn pairs."""
    count = len(before)
    if count < 2:
        return [], []
    drawn = np.random.default_rng(_SEED).integers(count, size=(RESAMPLES, count))
    base, mean = np.asarray(before)[drawn].mean(1), np.asarray(after)[drawn].mean(1)
    some = base > NOTHING
    return (mean[some] / base[some] - 1).tolist(), (mean - base).tolist()


def _interval(values: list[float]) -> tuple[float | None, float | None]:
    if not values:
        return None, None
    ordered = sorted(values)
    outside = (1 - LEVEL) / 2
    last = len(ordered) - 1
    return ordered[round(outside * last)], ordered[round((1 - outside) * last)]


def in_words(difference: Difference, what: str) -> str:
    """One sentence that claims no more than the numbers do."""
    gain = "" if difference.gain is None else f" ({difference.gain:+.0%})"
    told = f"{what} {difference.before:.4g} → {difference.after:.4g}{gain}"
    low, high = difference.difference_low, difference.difference_high
    if low is None or high is None:
        return f"{told}: one pair says nothing of chance; run more seeds"
    verdict = "better" if low > 0 else "worse" if high < 0 else "no clear difference"
    size = (
        ""
        if difference.effect is None
        else f", effect {_size(difference.effect)} (d = {difference.effect:.2f})"
    )
    return (
        f"{told}: {verdict}; 95 % interval of the difference {low:+.4g} to {high:+.4g}, "
        f"ahead in {difference.ahead} of {difference.pairs}{size}"
    )


def _size(effect: float) -> str:
    """Cohen's words, and one beyond."""
    for limit, word in ((0.2, "negligible"), (0.5, "small"), (0.8, "medium"), (2.0, "large")):
        if abs(effect) < limit:
            return word
    return "very large"
