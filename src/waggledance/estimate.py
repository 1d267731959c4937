"""What a handful of answers says about a model: pass@1 and pass@k, each with its interval.

Rewards come in, one tuple a task. Answers to one task hang together, so tasks are what is counted; an
interval of Wilson's over them is never empty, not even where nothing or everything was right.
"""

import math
from collections.abc import Sequence

import msgspec

Z = 1.96
"""95 %."""
RIGHT = 1.0


class Estimate(msgspec.Struct, frozen=True):
    value: float
    low: float
    high: float


def pass_at(k: int, rewards: Sequence[float]) -> float:
    """The chance that one of k answers is right, told without bias from all of a task's (Chen, 2021)."""
    n, right = len(rewards), sum(reward >= RIGHT for reward in rewards)
    assert 1 <= k <= n
    return 1.0 - math.comb(n - right, k) / math.comb(n, k)


def estimated(values: Sequence[float]) -> Estimate:
    """Their mean, values between 0 and 1: Wilson's interval is the widest that such values can call for."""
    n = len(values)
    assert n, "nothing was asked"
    mean = math.fsum(values) / n
    middle = (mean + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z / (1 + Z * Z / n) * math.sqrt(mean * (1 - mean) / n + Z * Z / (4 * n * n))
    return Estimate(mean, max(0.0, middle - half), min(1.0, middle + half))


def changed(before: Sequence[float], after: Sequence[float]) -> Estimate:
    """By how much the same tasks' values changed, in pairs."""
    differences = [new - old for old, new in zip(before, after, strict=True)]
    n = len(differences)
    mean = math.fsum(differences) / n
    variance = math.fsum((difference - mean) ** 2 for difference in differences) / max(1, n - 1)
    half = Z * math.sqrt(variance / n)
    return Estimate(mean, mean - half, mean + half)
