"""Aha: one node starts to solve a task; how many rounds until half and nine tenths of its swarm do.

Simulated nodes whose policy is one number (`pupil`). All but one answer right once in a hundred thousand
times, that one every other time; a node solves the task when it is right half the time. What spreads is what
the pool, the mix and the ear let through.
"""

import time
from collections.abc import Callable, Sequence
from itertools import product

import msgspec

from waggledance.bench.pupil import Pupil, Skill, solves
from waggledance.bench.simulated import SimulatedSwarm
from waggledance.sharing.share import EVERYTHING, INFORMATIVE

UNABLE, ABLE = -16.0, 0.0
DIFFICULTY_SPREAD = 3.0
LEARNING_RATE = 10.0
"""High, so that few groups with signal suffice: what is counted is how experience spreads."""
COMPLETIONS = 8
TEXT_CHARACTERS = 8
ROUND_S = 10.0
LIMIT_ROUNDS = 400
HALF, MOST = 0.5, 0.9
SHARES = (EVERYTHING, INFORMATIVE)


class Aha(msgspec.Struct, frozen=True):
    nodes: int
    rounds_to_half: int | None
    """None where it was not reached within LIMIT_ROUNDS or the time."""
    rounds_to_nine_tenths: int | None
    share: str
    """Which of its groups a node gives: all, or those that carry signal."""
    seed: int


def measure_aha(
    sizes: Sequence[int], seeds: Sequence[int], limit_s: float, tell: Callable[[str], None]
) -> list[Aha]:
    """As many as the time allows, in the order given; one that the time cut off is left out."""
    deadline = time.monotonic() + limit_s
    results: list[Aha] = []
    for size in sizes:
        for share, seed in product(SHARES, seeds):
            result = _spread(size, share, seed, deadline)
            if result is None:
                tell(f"aha: {size} nodes, {share}, seed {seed}: out of time; give it more --seconds")
                continue
            results.append(result)
            tell(
                f"aha: {size} nodes, {share}, seed {seed}: half after {result.rounds_to_half} rounds, "
                f"nine tenths after {result.rounds_to_nine_tenths}"
            )
    return results


def _spread(size: int, share: str, seed: int, deadline: float) -> Aha | None:
    skill = Skill(TEXT_CHARACTERS, DIFFICULTY_SPREAD)
    abilities = [ABLE] + [UNABLE] * (size - 1)
    pupils = [Pupil(skill, ability, LEARNING_RATE) for ability in abilities]
    swarm = SimulatedSwarm(pupils, skill, seed=seed, completions=COMPLETIONS, round_s=ROUND_S, share=share)
    half: int | None = None
    for number in range(1, LIMIT_ROUNDS + 1):
        if time.monotonic() > deadline:
            return None
        swarm.round()
        able = sum(map(solves, pupils)) / size
        if able >= HALF and half is None:
            half = number
        if able >= MOST:
            return Aha(size, half, number, share, seed)
    return Aha(size, half, None, share, seed)
