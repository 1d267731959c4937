"""Latency: from the moment a node publishes a group of 20 kB until seven others hold it, ours beside
hivemind's DHT, one publication in turn after the other.

On either side eight real processes of this machine. The seven ask as often as helps them (ours look into
their mailbox, hivemind's ask the DHT), and a side that is not in turn asks for nothing. All clocks are the
machine's one.
"""

import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import msgspec

from waggledance.bench.child import Child, end
from waggledance.bench.environment import hivemind_python
from waggledance.swarm.founding import cut, found
from waggledance.swarm.ticket import write_ticket

NODES = 8
GROUP_BYTES = 20_000
WARM_UP, TIMES = 3, 15
SETTLE_S = 0.2
"""From the moment all say that they ask until it is published."""
OUR_PAUSE_S, HIVEMIND_PAUSE_S = 1.0, 0.0
"""Between two looks. Hivemind's is the best of 0, 5, 20 and 50 ms."""


class Latency(msgspec.Struct, frozen=True):
    ours_ms: float
    hivemind_ms: float
    ratio: float


@dataclass(frozen=True, slots=True)
class Side:
    racers: Sequence[Child]
    pause_s: float

    def race(self, key: int) -> float:
        """Seconds until the last of the others holds it."""
        author, *others = self.racers
        for other in others:
            other.tell(f"hold {key} {self.pause_s}".encode())
        for other in others:
            assert json.loads(other.answer()) == "asking"
        time.sleep(SETTLE_S)
        author.tell(f"publish {key} {GROUP_BYTES}".encode())
        began = json.loads(author.answer())
        return max(json.loads(other.answer()) for other in others) - began


def measure_latency(nodes: int, limit_s: float, tell: Callable[[str], None]) -> Latency:
    """At least three times each, however short the time."""
    python = hivemind_python(tell)
    with tempfile.TemporaryDirectory(prefix="waggle-bench-") as name:
        folder = Path(name)
        with _ours(folder, nodes) as ours, _hivemind(folder, nodes, python) as theirs:
            tell(f"latency: {nodes} processes on either side are up")
            took = _race(ours, theirs, time.monotonic() + limit_s, tell)
    our_ms, their_ms = (1000 * median(seconds) for seconds in zip(*took, strict=True))
    return Latency(round(our_ms, 2), round(their_ms, 1), round(their_ms / our_ms, 1))


def _race(
    ours: Side, theirs: Side, deadline: float, tell: Callable[[str], None]
) -> list[tuple[float, float]]:
    took: list[tuple[float, float]] = []
    for key in range(WARM_UP + TIMES):
        if time.monotonic() > deadline and len(took) >= WARM_UP + 3:
            tell(f"latency: {TIMES - len(took) + WARM_UP} of {TIMES} left out for want of time")
            break
        took.append((ours.race(key), theirs.race(key)))
        ours_ms, theirs_ms = (1000 * seconds for seconds in took[-1])
        word = "warm-up" if key < WARM_UP else str(key - WARM_UP + 1)
        tell(f"latency {word}: ours {ours_ms:.2f} ms, hivemind {theirs_ms:.1f} ms")
    return took[WARM_UP:]


@contextlib.contextmanager
def _ours(folder: Path, nodes: int) -> Generator[Side]:
    with contextlib.ExitStack() as ends:
        racers: list[Child] = []
        ends.callback(end, racers)
        founding = found("race")
        for place in range(nodes):
            racers.append(Child(f"ours{place}", (sys.executable, "-m", "waggledance.bench.racer"), folder))
            racers[-1].tell(json.dumps([write_ticket(cut(founding)), nodes - 1]).encode())
        for racer in racers:
            racer.answer()
        yield Side(racers, OUR_PAUSE_S)


@contextlib.contextmanager
def _hivemind(folder: Path, nodes: int, python: Path) -> Generator[Side]:
    """The first begins a DHT, the others join it."""
    program = Path(__file__).with_name("hivemind_racer.py")
    with contextlib.ExitStack() as ends:
        racers: list[Child] = []
        ends.callback(end, racers)
        first = b"[]"
        for place in range(nodes):
            racers.append(Child(f"hivemind{place}", (str(python), str(program)), folder))
            racers[-1].tell(first)
            if place == 0:
                first = racers[0].answer()
        for racer in racers[1:]:
            racer.answer()
        yield Side(racers, HIVEMIND_PAUSE_S)
