"""Many real node processes over routers: how many groups they pass on, how soon, how many get lost, and what
a node costs.

A group counts as lost where a node's ear covered its address from well before it was published until well
after and it never arrived. While an ear turns nobody can say what it should have heard.
"""

import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import fmean

import msgspec
import numpy as np
from numpy.typing import NDArray

from waggledance.bench.crowd import Crowd, crowd
from waggledance.bench.resident import Report, Settings
from waggledance.swarm.ear import ADDRESSES

TEXT_CHARACTERS = 2_450
"""Of a rollout: a group of eight is a message of 20 kB."""
TURN_S = 3.0
"""An ear that was turned less than so long ago may not have been heard of everywhere."""
LAST_S = 5.0
"""What was published less than so long before the end may still be on its way."""
TELL_EVERY_S = 30.0


class Processes(msgspec.Struct, frozen=True):
    nodes: int
    groups_per_s: float
    """Published by all nodes."""
    p50_ms: float
    """From publishing in one process to arriving in another."""
    p99_ms: float
    lost: int
    cpu_s_per_node: float
    """Over the whole time measured."""
    rss_mb_per_node: float


def measure_processes(
    nodes: int, round_s: float, warm_up_s: float, seconds: float, tell: Callable[[str], None]
) -> Processes:
    settings = Settings(name="", ticket="", folder="", round_s=round_s, text_characters=TEXT_CHARACTERS)
    with crowd(nodes, settings, tell) as started:
        tell(f"processes: {nodes} nodes are up, a round every {round_s:g} s; {warm_up_s:g} s to settle")
        wait(started, warm_up_s, tell)
        began = time.monotonic()
        started.ask("fresh")
        wait(started, seconds, tell)
        ended = time.monotonic()
        reports = started.ask("look")
    _tell_rest(reports, tell)
    return figures(reports, began, ended, tell)


def wait(started: Crowd, seconds: float, tell: Callable[[str], None]) -> None:
    begin = time.monotonic()
    told = begin
    while (left_s := begin + seconds - time.monotonic()) > 0:
        time.sleep(min(1.0, left_s))
        started.check()
        if time.monotonic() - told >= TELL_EVERY_S:
            told = time.monotonic()
            tell(f"{max(0.0, left_s):.0f} s to go")


def _tell_rest(reports: Sequence[Report], tell: Callable[[str], None]) -> None:
    seconds = fmean(report.seconds for report in reports)
    rounds, late = sum(report.rounds for report in reports), sum(report.late_rounds for report in reports)
    heard = sum(report.received_groups for report in reports)
    dropped = sum(report.outbox_dropped + report.inbox_dropped for report in reports)
    peers = [report.peers for report in reports]
    tell(
        f"processes: in {seconds:.0f} s {rounds} rounds, {late} of them late; {heard / seconds:.0f} groups "
        f"a second arrived; full queues dropped {dropped}, refused {sum(r.refused for r in reports)}; "
        f"a node saw {min(peers)} to {max(peers)} others"
    )


def figures(reports: Sequence[Report], began: float, ended: float, tell: Callable[[str], None]) -> Processes:
    sent = _Sent(reports, began, ended - LAST_S)
    delays: list[NDArray[np.float64]] = []
    lost = due = 0
    for place, report in enumerate(reports):
        heard, at = _columns(report.heard)
        delays.append(sent.delays(heard, at))
        expected = sent.expected(place, report)
        due += len(expected)
        lost += len(np.setdiff1d(expected, heard))
    all_delays = 1000 * np.concatenate(delays)
    tell(f"processes: {lost} lost of {due} due; {len(all_delays)} delays, longest {all_delays.max():.0f} ms")
    p50, p99 = (float(value) for value in np.percentile(all_delays, (50, 99)))
    return Processes(
        nodes=len(reports),
        groups_per_s=round(sum(report.sent_groups / report.seconds for report in reports), 1),
        p50_ms=round(p50, 2),
        p99_ms=round(p99, 2),
        lost=lost,
        cpu_s_per_node=round(fmean(report.cpu_s for report in reports), 2),
        rss_mb_per_node=round(fmean(report.rss_mb for report in reports), 1),
    )


class _Sent:
    """Everything that was published within a time, by whom, where and when."""

    def __init__(self, reports: Sequence[Report], began: float, ended: float) -> None:
        rows = [
            (mark, place, address, at)
            for place, report in enumerate(reports)
            for mark, address, at in report.sent
            if began <= at <= ended
        ]
        rows.sort()
        self._marks = np.array([row[0] for row in rows], np.int64)
        self._places = np.array([row[1] for row in rows], np.int64)
        self._addresses = np.array([row[2] for row in rows], np.int64)
        self._at = np.array([row[3] for row in rows], np.float64)

    def delays(self, heard: NDArray[np.int64], at: NDArray[np.float64]) -> NDArray[np.float64]:
        """How long each of what was heard had been under way; what was published at another time is left
        out."""
        if not len(self._marks):
            return np.zeros(0)
        found = np.minimum(np.searchsorted(self._marks, heard), len(self._marks) - 1)
        known = self._marks[found] == heard
        return at[known] - self._at[found[known]]

    def expected(self, place: int, report: Report) -> NDArray[np.int64]:
        """The marks of what a node must have heard."""
        due = np.zeros(len(self._marks), bool)
        times = [*report.ears, (float("inf"), 0)]
        for (since, width), (until, _) in pairwise(times):
            steady = (self._at >= since + TURN_S) & (self._at <= until - TURN_S)
            due |= steady & ((self._addresses - report.start) % ADDRESSES < width)
        return self._marks[due & (self._places != place)]


def _columns(stamps: Sequence[tuple[int, int, float]]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    return (
        np.array([mark for mark, _, _ in stamps], np.int64),
        np.array([at for _, _, at in stamps], np.float64),
    )
