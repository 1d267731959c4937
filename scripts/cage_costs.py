"""What the cage costs on this machine: start, one call, a call of 64 answers, memory.

`python scripts/cage_costs.py` prints one JSON object; times in milliseconds, memory in MB as the system
shares it out between processes (proportional set size).
"""

import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from waggledance.seams import Pair, Verifier
from waggledance.tasks import Arithmetic, open_sources
from waggledance.tasks.judge import WARDEN, scored
from waggledance.verify import Uncaged
from waggledance.verify.cage import Cage

CALLS = 200
SCORED = ("gym:knights_knaves", "gym:survo")


def timed_ms(act: Callable[[], object]) -> float:
    start = time.perf_counter()
    act()
    return 1000 * (time.perf_counter() - start)


def median_ms(verifier: Verifier, pairs: Sequence[Pair]) -> float:
    return statistics.median(timed_ms(lambda: verifier.verify(pairs)) for _ in range(CALLS))


def offspring(pid: int) -> list[int]:
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [*children, *(each for child in children for each in offspring(child))]


def memory_mb(pids: Sequence[int]) -> float:
    lines: list[str] = []
    for pid in pids:
        with suppress(OSError):  # a worker that was used up is just leaving
            lines += Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return round(sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024, 1)


def costs(cage: Cage, pairs: Sequence[Pair]) -> dict[str, object]:
    before = set(offspring(os.getpid()))
    start_ms = timed_ms(lambda: cage.fence)
    first = cage.verify(pairs)
    assert all(isinstance(verdict, tuple) for verdict in first)
    figures: dict[str, object] = {
        "fence": str(cage.fence),
        "start_ms": round(start_ms),
        "one_group_ms": round(median_ms(cage, pairs[:1]), 2),
        "64_answers_ms": round(median_ms(cage, pairs), 2),
        "processes": len(set(offspring(os.getpid())) - before),
        "memory_mb": memory_mb(sorted(set(offspring(os.getpid())) - before)),
    }
    cage.close()
    return figures


def main() -> None:
    sums = Arithmetic()
    tasks = [sums.task(index) for index in range(8)]
    pairs: list[Pair] = [
        (task, [f"<answer>{task.truth}</answer>", "<answer>no</answer>"] * 4) for task in tasks
    ]
    result: dict[str, object] = {"own rules": costs(Cage(), pairs)}
    result["own rules, no cage"] = {
        "one_group_ms": round(median_ms(Uncaged(), pairs[:1]), 2),
        "64_answers_ms": round(median_ms(Uncaged(), pairs), 2),
    }
    sources = open_sources(SCORED)
    items = [source.task(index) for source in sources for index in range(4)]
    answered: list[Pair] = [
        (task, [f"<answer>{task.truth}</answer>", "<answer>no</answer>"] * 4) for task in items
    ]
    result[f"scorers of {len(SCORED)} datasets"] = costs(
        Cage(program=WARDEN, words=scored(sources)), answered
    )
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
