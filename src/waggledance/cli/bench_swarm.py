"""`waggle bench swarm`: what the swarm does and costs, as one JSON object and as a table."""

import argparse
import sys
from collections.abc import Callable
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from waggledance.bench.aha import Aha, measure_aha
from waggledance.bench.latency import NODES, measure_latency
from waggledance.bench.machine import machine
from waggledance.bench.processes import Processes, measure_processes
from waggledance.bench.traffic import Traffic, measure_traffic
from waggledance.cli.verb import add_verb
from waggledance.errors import UsageError

PARTS = ("latency", "processes", "traffic", "aha")
AHA_SIZES, AHA_SEEDS = (8, 32, 128, 512), (1, 2, 3)
AHA_LIMIT_S = 600.0
LATENCY_LIMIT_S = 120.0
PROCESSES, PROCESSES_ROUND_S = 100, 2.0
PROCESSES_S, SETTLE_S = 300.0, 80.0
REAL_SIZES, SIMULATED_SIZES = (8, 32, 128), (8, 32, 128, 512, 2048)
REAL_LIMIT = 256
"""So many node processes one machine is asked to carry."""
TRAFFIC_LIMIT_S = 900.0
DESCRIPTION = """Measures the swarm, with real nodes over three routers of this machine and, for sizes
it cannot carry, with the same nodes in one process. Progress goes to standard error.

  latency    publishing 20 kB until 7 others hold it, beside hivemind's DHT, which is installed into
             an environment of its own when it is first wanted
  processes  100 nodes for five minutes: groups a second, delay, losses, what a node costs
  traffic    bytes a node's round, by the size of the swarm
  aha        one node starts to solve a task: rounds until half and nine tenths of the swarm do"""
EXAMPLE = """example:
  waggle bench swarm --part aha --nodes 32
  waggle bench swarm --part processes --nodes 20 --seconds 30
  waggle bench swarm --json > swarm.json"""


class Figures(msgspec.Struct, omit_defaults=True):
    """What was asked for; what was not is left out."""

    ours_ms: float | None = None
    hivemind_ms: float | None = None
    ratio: float | None = None
    processes: Processes | None = None
    traffic: list[Traffic] | None = None
    aha: list[Aha] | None = None


def add_parser(kinds: Any) -> None:
    parser = add_verb(
        kinds, "swarm", "what the swarm does and costs", description=DESCRIPTION, example=EXAMPLE, run=run
    )
    parser.add_argument("--part", choices=PARTS, help="this one only (default: all)")
    parser.add_argument("--nodes", type=int, metavar="N", help="swarms of at most so many nodes")
    parser.add_argument("--seconds", type=float, metavar="S", help="at most so long for each part")


def run(options: argparse.Namespace) -> int:
    if options.nodes is not None and not 2 <= options.nodes <= 4096:
        raise UsageError(f"--nodes {options.nodes}: take 2 to 4096")
    if options.seconds is not None and not 1 <= options.seconds <= 86_400:
        raise UsageError(f"--seconds {options.seconds:g}: take 1 to 86400")
    _tell(machine("eclipse-zenoh"))
    figures = Figures()
    parts: dict[str, Callable[[argparse.Namespace, Figures], None]] = {
        "latency": _latency,
        "processes": _processes,
        "traffic": _traffic,
        "aha": _aha,
    }
    for name, measure in parts.items():
        if options.part in (None, name):
            measure(options, figures)
    if options.json:
        print(msgspec.json.encode(figures).decode())
    else:
        _show(figures)
    return 0


def _latency(options: argparse.Namespace, figures: Figures) -> None:
    nodes = min(NODES, options.nodes or NODES)
    latency = measure_latency(nodes, options.seconds or LATENCY_LIMIT_S, _tell)
    figures.ours_ms, figures.hivemind_ms, figures.ratio = latency.ours_ms, latency.hivemind_ms, latency.ratio


def _processes(options: argparse.Namespace, figures: Figures) -> None:
    nodes, seconds = options.nodes or PROCESSES, options.seconds or PROCESSES_S
    if nodes > REAL_LIMIT:
        raise UsageError(f"--nodes {nodes}: one machine is asked for {REAL_LIMIT} node processes at most")
    figures.processes = measure_processes(nodes, PROCESSES_ROUND_S, min(SETTLE_S, seconds), seconds, _tell)


def _traffic(options: argparse.Namespace, figures: Figures) -> None:
    most = options.nodes
    real = _sizes(REAL_SIZES, most if most is None or most <= REAL_SIZES[-1] else None)
    simulated = _sizes(SIMULATED_SIZES, most)
    figures.traffic = measure_traffic(real, simulated, options.seconds or TRAFFIC_LIMIT_S, _tell)


def _aha(options: argparse.Namespace, figures: Figures) -> None:
    sizes = _sizes(AHA_SIZES, options.nodes)
    figures.aha = measure_aha(sizes, AHA_SEEDS, options.seconds or AHA_LIMIT_S, _tell)


def _sizes(all_sizes: tuple[int, ...], most: int | None) -> tuple[int, ...]:
    """Those up to `most`, which is one of them where it is given."""
    if most is None:
        return all_sizes
    return (*(size for size in all_sizes if size < most), most)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _show(figures: Figures) -> None:
    console = Console()
    if figures.ratio is not None:
        console.print(
            f"latency: ours {figures.ours_ms} ms, hivemind {figures.hivemind_ms} ms: "
            f"{figures.ratio} times sooner"
        )
    if figures.processes is not None:
        table = Table(title="processes", title_justify="left", show_header=False)
        for name, value in msgspec.structs.asdict(figures.processes).items():
            table.add_row(name, str(value))
        console.print(table)
    if figures.traffic is not None:
        table = Table("nodes", "bytes a node's round", "", title="traffic", title_justify="left")
        for row in figures.traffic:
            table.add_row(
                str(row.nodes), f"{row.bytes_per_round:,}", "simulated" if row.simulated else "real"
            )
        console.print(table)
    if figures.aha is not None:
        table = Table("nodes", "shared", "seed", "rounds to half", "to nine tenths", title="aha")
        for aha in figures.aha:
            table.add_row(
                *map(str, (aha.nodes, aha.share, aha.seed, aha.rounds_to_half, aha.rounds_to_nine_tenths))
            )
        console.print(table)
