"""`waggle bench swarm` measures what it says, with real nodes."""

import json
import os
import platform
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cli_run import PATIENCE_S, started, waggle, wait_until
from waggledance import __version__
from waggledance.bench import processes
from waggledance.bench.aha import DIFFICULTY_SPREAD, LEARNING_RATE, UNABLE, measure_aha
from waggledance.bench.crowd import ROUTERS
from waggledance.bench.machine import machine
from waggledance.bench.pupil import Pupil, Skill, solves
from waggledance.bench.resident import Report
from waggledance.bench.simulated import SimulatedSwarm
from waggledance.bench.traffic import measure_traffic
from waggledance.cli.main import main
from waggledance.errors import MissingError


def ignore(line: str) -> None:
    del line


def test_an_aha_spreads_and_a_swarm_without_one_learns_nothing() -> None:
    told: list[str] = []
    result, informative = measure_aha([8], [1], 60, told.append)
    assert (result.share, informative.share) == ("everything", "informative")
    assert result.rounds_to_half is not None
    assert result.rounds_to_nine_tenths is not None
    assert 2 <= result.rounds_to_half <= result.rounds_to_nine_tenths < 100
    assert "8 nodes" in told[0]
    skill = Skill(8, DIFFICULTY_SPREAD)
    pupils = [Pupil(skill, UNABLE, LEARNING_RATE) for _ in range(8)]
    swarm = SimulatedSwarm(pupils, skill, seed=1, completions=8, round_s=10)
    for _ in range(result.rounds_to_nine_tenths):
        swarm.round()
    assert not any(map(solves, pupils))


@pytest.mark.slow
def test_the_same_code_meets_as_much_in_a_large_swarm_as_in_a_middling_one() -> None:
    """The whole figures are `waggle bench swarm --part traffic`."""
    [small, large] = measure_traffic((), (32, 64), 60, ignore)
    assert (small.nodes, large.nodes) == (32, 64)
    assert large.bytes_per_round == pytest.approx(small.bytes_per_round, rel=0.1)


def report(author: str, start: int, ears: list[tuple[float, int]], **more: object) -> Report:
    figures = dict.fromkeys(Report.__struct_fields__, 0) | {"author": author, "seconds": 100.0}
    figures |= {"sent": [], "heard": [], "start": start, "ears": ears}
    return msgspec.convert(figures | more, Report)


def test_what_a_steady_ear_missed_is_lost_and_what_it_does_not_cover_is_not() -> None:
    sent = [(1, 10, 20.0), (2, 10, 30.0), (3, 2000, 40.0), (4, 10, 2.5), (5, 10, 99.0)]
    ant = report("ant", 0, [(0.0, 4096)], sent=sent, sent_groups=5)
    # bee's ear has turned at 2 s, so nobody knows of 4; 5 came too shortly before the end.
    bee = report("bee", 4090, [(0.0, 64), (2.0, 100)], heard=[(1, 10, 20.004)])
    cat = report("cat", 4000, [(0.0, 4096)], heard=[(mark, 0, at + 0.002) for mark, _, at in sent])
    told: list[str] = []
    figures = processes.figures([ant, bee, cat], began=0.0, ended=100.0, tell=told.append)
    assert figures.lost == 1
    assert figures.p50_ms == pytest.approx(2)
    assert figures.p99_ms == pytest.approx(4, abs=0.1)
    assert figures.groups_per_s == pytest.approx(0.1, abs=0.05)


def test_a_figure_s_machine_is_named() -> None:
    line = machine("msgspec")
    assert f"Python {platform.python_version()}" in line
    assert f"msgspec {msgspec.__version__}" in line
    assert f"waggledance {__version__} at " in line


def measured(folder: Path, *words: str) -> dict[str, Any]:
    done = waggle(folder, "bench", "swarm", "--json", *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_real_processes_over_routers_pass_on_everything(tmp_path: Path) -> None:
    found = measured(tmp_path, "--part", "processes", "--nodes", "6", "--seconds", "20")
    assert set(found) == {"processes"}
    of = found["processes"]
    assert of["nodes"] == 6
    assert of["lost"] == 0
    assert of["groups_per_s"] == pytest.approx(6 * 4 / 2, rel=0.3)
    assert 0 < of["p50_ms"] <= of["p99_ms"] < 5_000
    assert of["cpu_s_per_node"] > 0
    assert of["rss_mb_per_node"] > 10


@pytest.mark.slow
def test_the_simulation_counts_what_real_sockets_carry(tmp_path: Path) -> None:
    found = measured(tmp_path, "--part", "traffic", "--nodes", "8")
    real, simulated = sorted(found["traffic"], key=lambda row: row["simulated"])
    assert (real["nodes"], simulated["nodes"]) == (8, 8)
    assert simulated["bytes_per_round"] == pytest.approx(real["bytes_per_round"], rel=0.05)


@pytest.mark.slow
def test_ctrl_c_leaves_no_process_behind(tmp_path: Path) -> None:
    words = ("bench", "swarm", "--part", "processes", "--nodes", "4")
    with started(tmp_path, *words) as bench:
        wait_until(lambda: "are up" in (tmp_path / "err.txt").read_text(), "the nodes are up")
        children = offspring(bench.pid)
        assert len(children) == 4 + ROUTERS
        os.killpg(bench.pid, signal.SIGINT)
        assert bench.wait(PATIENCE_S) == 130
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)


def offspring(parent: int) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("--nodes 1", "--nodes 1: take 2 to 4096"),
        ("--seconds 0", "--seconds 0: take 1 to 86400"),
        ("--part processes --nodes 300", "256 node processes at most"),
        ("--part nonsense", "invalid choice: 'nonsense'"),
    ],
)
def test_what_cannot_be_measured_is_refused(words: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "swarm", *words.split()]) == 2
    assert why in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(900)
def test_ours_is_held_sooner_than_hivemind_s(tmp_path: Path) -> None:
    """The margin is `waggle bench swarm --part latency`'s to show, on a machine with nothing else to do."""
    done = waggle(tmp_path, "bench", "swarm", "--json", "--part", "latency", "--nodes", "3", "--seconds", "5")
    if done.returncode == MissingError.exit_code:
        pytest.skip(done.stderr.splitlines()[-1])  # no way to the package index from here
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found) == {"ours_ms", "hivemind_ms", "ratio"}
    assert found["ratio"] == pytest.approx(found["hivemind_ms"] / found["ours_ms"], rel=0.05)
    assert found["ratio"] > 3
