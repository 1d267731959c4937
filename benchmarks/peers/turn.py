"""What the three programs share in a turn: what is asked, the clock, and what is told at the end.

Used with each program's own interpreter, so it needs nothing but Python and torch.
"""

# pyright: standard

import json
import os
import resource
import statistics
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

QUESTIONS, COMPLETIONS, TOKENS = 8, 8, 32
WARM_TOKENS = 2

Message = dict[str, str]


@dataclass(frozen=True)
class Turn:
    folder: str
    """The model's."""
    prompts: list[list[Message]]
    """A chat each."""
    rounds: int
    threads: int


def read_turn() -> Turn:
    parser = ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--prompts", required=True, type=Path)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    import torch

    torch.set_num_threads(asked.threads)
    torch.manual_seed(0)
    return Turn(asked.model, json.loads(asked.prompts.read_text()), asked.rounds, asked.threads)


def reward_of(place: int) -> float:
    """Half of every group is right, so that no group can be left out."""
    return float(place % 2)


@dataclass(frozen=True)
class Took:
    """A round, by the clock on the wall and by all of this process's threads."""

    seconds: float
    cpu_s: float


class Clock:
    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def took(self) -> Took:
        return Took(time.perf_counter() - self._wall, time.process_time() - self._cpu)


def tell(program: str, rounds: list[Took], prompt_tokens: int, drawn: int, libraries: list[str]) -> None:
    """One JSON line on standard output. Memory is the operating system's peak of this process, in GB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    told = {
        "program": program,
        "seconds": round(statistics.median(took.seconds for took in rounds), 2),
        "cpu_s": round(statistics.median(took.cpu_s for took in rounds), 2),
        "peak_gb": round(peak / 1e9, 2),
        "prompt_tokens": prompt_tokens,
        "completion_tokens": drawn,
        "versions": {name: version(name) for name in ("torch", "transformers", *libraries)},
    }
    sys.stdout.flush()
    os.write(1, (json.dumps(told) + "\n").encode())


def timed(work: Callable[[], None]) -> Took:
    clock = Clock()
    work()
    return clock.took()
