"""Traffic: how many bytes cross a node's boundary in a round, both ways, by the size of its swarm.

Real node processes as far as this machine carries: all bytes of their sockets, as the kernel counts them. The
same nodes under one sky (`simulated`) beyond that, and beside them where both can be had: the messages and
their keys, which is all but the network's own framing.
"""

import time
from collections.abc import Callable, Sequence
from statistics import fmean

import msgspec

from waggledance.bench.crowd import crowd
from waggledance.bench.processes import TEXT_CHARACTERS, wait
from waggledance.bench.pupil import Pupil, Skill
from waggledance.bench.resident import SUCCESS_ABILITY, Settings
from waggledance.bench.simulated import SimulatedSwarm

COMPLETIONS = 8
SETTLING_ROUNDS, MEASURED_ROUNDS = 40, 20
"""A node is hungry at first; its appetite has settled after some thirty rounds."""
NODES_A_SECOND = 40
"""So many real rounds a second two cores can do."""
LEAST_ROUND_S, LONGEST_ROUND_S = 0.5, 5.0


class Traffic(msgspec.Struct, frozen=True):
    nodes: int
    bytes_per_round: int
    """The mean over nodes and rounds."""
    simulated: bool


def round_s(nodes: int) -> float:
    """Large swarms go slower, so that one machine can carry them: cards come by the clock."""
    return min(LONGEST_ROUND_S, max(LEAST_ROUND_S, nodes / NODES_A_SECOND))


def measure_traffic(
    real: Sequence[int], simulated: Sequence[int], limit_s: float, tell: Callable[[str], None]
) -> list[Traffic]:
    """Those for which the time suffices."""
    deadline = time.monotonic() + limit_s
    results: list[Traffic] = []
    for nodes in real:
        takes_s = round_s(nodes) * (SETTLING_ROUNDS + MEASURED_ROUNDS)
        if time.monotonic() + takes_s > deadline:
            tell(f"traffic: {nodes} real nodes take {takes_s:.0f} s; give it more --seconds")
            continue
        results.append(_note(_real(nodes, tell), tell))
    for nodes in simulated:
        counted = _simulated(nodes, round_s(nodes), deadline)
        if counted is None:
            tell(f"traffic: {nodes} simulated nodes: out of time; give it more --seconds")
        else:
            results.append(_note(counted, tell))
    return sorted(results, key=lambda row: (row.nodes, row.simulated))


def _note(result: Traffic, tell: Callable[[str], None]) -> Traffic:
    kind = "simulated" if result.simulated else "real"
    tell(f"traffic: {result.nodes} {kind} nodes: {result.bytes_per_round:,} bytes a node's round")
    return result


def _real(nodes: int, tell: Callable[[str], None]) -> Traffic:
    pace_s = round_s(nodes)
    settings = Settings(
        name="",
        ticket="",
        folder="",
        round_s=pace_s,
        text_characters=TEXT_CHARACTERS,
        completions=COMPLETIONS,
    )
    with crowd(nodes, settings, tell) as started:
        wait(started, SETTLING_ROUNDS * pace_s, tell)
        started.ask("fresh")
        wait(started, MEASURED_ROUNDS * pace_s, tell)
        reports = started.ask("look")
    late = sum(report.late_rounds for report in reports)
    if late:
        tell(f"traffic: {late} of {nodes}'s rounds came late: this machine is busy")
    return Traffic(nodes, round(fmean(report.tcp_bytes / report.rounds for report in reports)), False)


def _simulated(nodes: int, pace_s: float, deadline: float) -> Traffic | None:
    skill = Skill(TEXT_CHARACTERS)
    pupils = [Pupil(skill, SUCCESS_ABILITY, learning_rate=0.0) for _ in range(nodes)]
    swarm = SimulatedSwarm(pupils, skill, seed=1, completions=COMPLETIONS, round_s=pace_s)
    before = 0
    for number in range(SETTLING_ROUNDS + MEASURED_ROUNDS):
        if time.monotonic() > deadline:
            return None
        if number == SETTLING_ROUNDS:
            before = _crossed(swarm)
        swarm.round()
    return Traffic(nodes, round((_crossed(swarm) - before) / MEASURED_ROUNDS / nodes), True)


def _crossed(swarm: SimulatedSwarm) -> int:
    traffic = [node.swarm.traffic() for node in swarm.nodes]
    return sum(counted.sent_bytes + counted.received_bytes for counted in traffic)
