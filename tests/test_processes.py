"""Node processes: they do their work, say why they died, and none outlives whoever started it."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_run import fill, told, wait_until, writer
from waggledance.cli.processes import LOG, NodeProcesses
from waggledance.cli.training import JOURNAL, SETTINGS
from waggledance.config import (
    EvaluateConfig,
    LearnerConfig,
    NodeConfig,
    PolicyConfig,
    SwarmConfig,
    write_config,
)
from waggledance.errors import NodeError, StorageError
from waggledance.events import Failed, Finished, Learned, Started

LEAVE_S = 10.0


def node_folder(
    swarm: Path, name: str, rounds: int = 10**9, tasks: tuple[str, ...] = ("arithmetic",)
) -> Path:
    config = NodeConfig(
        name=name,
        rounds=rounds,
        tasks=tasks,
        policy=PolicyConfig(kind="scripted"),
        learner=LearnerConfig(kind="none"),
        swarm=SwarmConfig(kind="none"),
        evaluate=EvaluateConfig(tasks=0),
    )
    folder = swarm / name
    folder.mkdir(parents=True)
    (folder / SETTINGS).write_text(write_config(config), encoding="utf-8")
    return folder


def works(folder: Path) -> bool:
    return len(told(folder / JOURNAL, Learned)) > 0


def gone(pid: int) -> bool:
    """Nobody waits for a killed grandchild here, so a zombie counts as gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


@pytest.fixture
def swarm(tmp_path: Path) -> Iterator[Path]:
    """As in a demo, the folder above a node's says which side it is on."""
    before = os.environ.get("PYTHONHASHSEED")
    yield tmp_path / "silo"
    assert os.environ.get("PYTHONHASHSEED") == before
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_nodes_do_their_rounds_and_end(swarm: Path) -> None:
    folders = [node_folder(swarm, name, rounds=3) for name in ("n0", "n1")]
    with NodeProcesses(folders) as processes:
        wait_until(lambda: not processes.running(), "both are done")
    for folder in folders:
        assert len(told(folder / JOURNAL, Learned)) == 3
        assert told(folder / JOURNAL, Finished) == [Finished("rounds done")]
        assert (folder / LOG).read_text() == ""


def test_leaving_stops_nodes_that_are_not_done(swarm: Path) -> None:
    folders = [node_folder(swarm, name) for name in ("n0", "n1")]
    with NodeProcesses(folders) as processes:
        wait_until(lambda: all(map(works, folders)), "both at work")
        pids = [writer(folder / JOURNAL) for folder in folders]
        assert processes.running()
    assert all(map(gone, pids))
    assert [told(folder / JOURNAL, Finished) for folder in folders] == [[Finished("stopped")]] * 2


def test_a_killed_node_is_named_and_takes_the_others_along(swarm: Path) -> None:
    folders = [node_folder(swarm, name) for name in ("n0", "n1")]
    pids: list[int] = []

    def kill_one(processes: NodeProcesses) -> None:
        with processes:
            wait_until(lambda: all(map(works, folders)), "both at work")
            pids.extend(writer(folder / JOURNAL) for folder in folders)
            os.kill(pids[1], signal.SIGKILL)
            wait_until(lambda: not processes.running(), "the death is noticed")

    with pytest.raises(NodeError, match=r"^node silo/n1 was killed, by somebody or for want of memory; "):
        kill_one(NodeProcesses(folders))
    assert len(pids) == 2
    assert all(map(gone, pids))


def test_a_node_that_fails_says_why(swarm: Path) -> None:
    folders = [node_folder(swarm, "n0"), node_folder(swarm, "n1", tasks=("arithmtic",))]
    processes = NodeProcesses(folders)
    said = r"^node silo/n1 ended with code 5; no task source is called 'arithmtic'"
    with pytest.raises(NodeError, match=said), processes:
        wait_until(lambda: not processes.running(), "the failure is noticed")
    assert [failed.exit_code for failed in told(folders[1] / JOURNAL, Failed)] == [5]


def test_a_bug_in_a_node_is_told_by_the_last_line_of_its_log(swarm: Path) -> None:
    folder = node_folder(swarm, "n0")
    (folder / JOURNAL).mkdir()
    processes = NodeProcesses([folder])
    with pytest.raises(NodeError, match=r"^node silo/n0 ended with code 1; IsADirectoryError"), processes:
        wait_until(lambda: not processes.running(), "the failure is noticed")
    assert (folder / LOG).read_text().startswith("Process")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_full_disk_is_told_even_where_the_log_has_no_room(swarm: Path) -> None:
    swarm.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", swarm], check=True)
    try:
        folder = node_folder(swarm, "n0")
        fill(swarm / "filler")
        processes = NodeProcesses([folder])
        said = r"^node silo/n0 ended with code 7; no space is left at .*n0; free some space$"
        with pytest.raises(StorageError, match=said), processes:
            wait_until(lambda: not processes.running(), "the failure is noticed")
    finally:
        subprocess.run(["umount", swarm], check=True)


def test_an_interrupt_while_starting_ends_those_that_have_started(
    swarm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [node_folder(swarm, name) for name in ("n0", "n1")]
    pids: list[int] = []
    start = NodeProcesses._start  # pyright: ignore[reportPrivateUsage]

    def interrupted(processes: NodeProcesses, folder: Path) -> None:
        if folder == folders[1]:
            wait_until(lambda: works(folders[0]), "the first at work")
            pids.append(writer(folders[0] / JOURNAL))
            raise KeyboardInterrupt
        start(processes, folder)

    monkeypatch.setattr(NodeProcesses, "_start", interrupted)
    with pytest.raises(KeyboardInterrupt), NodeProcesses(folders):
        pass
    assert gone(pids[0])
    assert told(folders[0] / JOURNAL, Started)
