"""The demo as a process: what it prints and leaves, that it does as it is told, that nothing outlives it."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli_run import dwellers, entries, error_line, fill, loads, started, told, waggle, wait_until, writer
from waggledance.cli.space import check_space
from waggledance.errors import StorageError
from waggledance.events import Event, Generated, Sampled, Started, Verified

NODES, ROUNDS, OWN, FOREIGN, SEED = 2, 3, 3, 2, 5
LEAVE_S, START_S = 10.0, 60.0
BRIEF = ("demo", "--nodes", "2", "--rounds", "3", "--seed", "5", "--mix", "3/2")
ENDLESS = ("demo", "--nodes", "2", "--rounds", "1000000", "--dir", "run")


def journals(run: Path, side: str) -> list[Path]:
    return sorted((run / side).glob("n*/journal.jsonl"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One short demo, looked at by the tests below."""
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WAGGLE_HOME", str(folder / "home"))
        done = waggle(folder, *BRIEF, "--dir", "run", "--json")
    (folder / "out.txt").write_text(done.stdout)
    (folder / "err.txt").write_text(done.stderr)
    assert done.returncode == 0, done.stderr
    assert not dwellers(folder)
    return folder


@pytest.mark.slow
def test_json_is_the_whole_of_standard_output(folder: Path) -> None:
    text = (folder / "out.txt").read_text()
    assert text.count("\n") == 1
    result: dict[str, Any] = json.loads(text)
    assert {"silo", "swarm", "gain_own", "gain_heldout", "seconds", "picture", "models"} <= result.keys()
    for side in (result["silo"], result["swarm"]):
        assert {"own", "trained", "heldout", "tokens_generated"} <= side.keys()
        assert all(0 <= side[name] <= 1 for name in ("own", "trained", "heldout"))
        assert side["tokens_generated"] > 0
    assert (result["nodes"], result["rounds"], result["seed"], result["mix"]) == (2, 3, 5, "3/2")
    assert result == json.loads((folder / "run" / "result.json").read_text())
    assert "round 3/3" in (folder / "err.txt").read_text()


@pytest.mark.slow
def test_the_picture_is_a_png_and_every_model_loads(folder: Path) -> None:
    result = json.loads((folder / "out.txt").read_text())
    assert (folder / result["picture"]).read_bytes().startswith(b"\x89PNG\r\n")
    assert len(result["models"]) == 2 * NODES
    for model in result["models"]:
        loads(folder / model)
        assert not [path for path in (folder / model).parent.iterdir() if path.name.startswith(".")]


@pytest.mark.slow
def test_nodes_rounds_and_mix_do_what_they_say(folder: Path) -> None:
    for side, own, foreign in (("silo", OWN + FOREIGN, 0), ("swarm", OWN, FOREIGN)):
        files = journals(folder / "run", side)
        assert len(files) == NODES
        for journal in files:
            [begun] = told(journal, Started)
            assert (begun.seed, begun.rounds, begun.mix) == (SEED, ROUNDS, f"fixed({own}, {foreign})")
            assert [event.groups for event in told(journal, Generated)] == [own] * ROUNDS
            assert all(event.own == own for event in told(journal, Sampled))
            assert all(event.foreign <= foreign for event in told(journal, Sampled))


@pytest.mark.slow
def test_the_same_seed_gives_the_same_silo_and_another_seed_another(folder: Path, tmp_path: Path) -> None:
    again = waggle(tmp_path, *BRIEF, "--dir", "run", "--json")
    other = waggle(tmp_path, *BRIEF, "--seed", "6", "--dir", "other", "--json")
    assert (again.returncode, other.returncode) == (0, 0)
    one, same, different = (
        [rewards(journal) for journal in journals(run, "silo")]
        for run in (folder / "run", tmp_path / "run", tmp_path / "other")
    )
    assert one == same
    assert one != different


def rewards(journal: Path) -> list[Event]:
    """What was generated and earned, without the times."""
    return [
        (event.tokens if isinstance(event, Generated) else event.reward)  # pyright: ignore
        for event in (entry.event for entry in entries(journal))
        if isinstance(event, Generated | Verified)
    ]


@pytest.mark.slow
def test_for_people_it_ends_with_a_table_and_where_things_are(tmp_path: Path) -> None:
    done = waggle(tmp_path, "demo", "--nodes", "1", "--rounds", "1", "--dir", "run")
    assert done.returncode == 0
    for words in (
        "own reward",
        "trained reward",
        "held-out reward",
        "tokens generated",
        "silo (8/0)",
        "swarm (4/4)",
    ):
        assert words in done.stdout
    assert "picture: run/curves.png" in done.stdout
    assert "models:  run/{silo,swarm}/n*/model" in done.stdout


def everybody_works(folder: Path) -> bool:
    files = [*journals(folder / "run", "silo"), *journals(folder / "run", "swarm")]
    return len(files) == 4 and all(told(journal, Verified) for journal in files)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("early", [True, False], ids=["early", "at-work"])
def test_no_process_outlives_the_demo(number: signal.Signals, early: bool, tmp_path: Path) -> None:
    with started(tmp_path, *ENDLESS, "--json") as demo:
        if early:
            wait_until(lambda: len(dwellers(tmp_path)) > 1, "a first child")
        else:
            wait_until(lambda: everybody_works(tmp_path), "four nodes at work")
        if number == signal.SIGINT:
            os.killpg(demo.pid, number)  # as a terminal does: everybody gets it
        else:
            demo.send_signal(number)
        # Children that are still importing end when they have done so.
        patience_s = START_S if early else LEAVE_S
        code = demo.wait(patience_s)
        wait_until(lambda: not dwellers(tmp_path), "no process left", patience_s)
    said = (tmp_path / "err.txt").read_text()
    if number == signal.SIGKILL:
        assert code == -signal.SIGKILL
    else:
        assert code == 130
        assert error_line(said) == "interrupted"
    assert "Traceback" not in said
    assert (tmp_path / "out.txt").read_text() == ""


@pytest.mark.slow
def test_a_killed_node_ends_the_demo_with_its_name(tmp_path: Path) -> None:
    with started(tmp_path, *ENDLESS, "--json") as demo:
        wait_until(lambda: everybody_works(tmp_path), "four nodes at work")
        os.kill(writer(tmp_path / "run" / "swarm" / "n1" / "journal.jsonl"), signal.SIGKILL)
        assert demo.wait(LEAVE_S) == 8
        wait_until(lambda: not dwellers(tmp_path), "no process left", LEAVE_S)
    assert error_line((tmp_path / "err.txt").read_text()).startswith("node swarm/n1 was killed")
    assert (tmp_path / "out.txt").read_text() == ""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """24 MB: room for one node on either side, not for two."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", disk], check=True)
    yield disk
    subprocess.run(["umount", disk], check=True)


needs_root = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("mount"), reason="mounting needs root")


def test_room_is_asked_for_where_the_folder_will_be(tmp_path: Path) -> None:
    check_space(tmp_path / "not" / "yet", 1)
    with pytest.raises(
        StorageError, match=r"^disk full: .* MB free, 1000000000000 MB are needed; free some space"
    ):
        check_space(tmp_path / "not" / "yet", 10**18)
    assert not (tmp_path / "not").exists()


@needs_root
def test_too_little_room_is_said_before_anything_is_written(small_disk: Path, tmp_path: Path) -> None:
    done = waggle(tmp_path, "demo", "--nodes", "2", "--dir", "disk/run", "--json")
    assert (done.returncode, done.stdout) == (7, "")
    assert done.stderr.count("\n") == 1
    assert error_line(done.stderr).startswith("disk full: ")
    assert not list(small_disk.iterdir())


@needs_root
@pytest.mark.slow
def test_a_disk_that_fills_ends_the_demo_in_one_line(small_disk: Path, tmp_path: Path) -> None:
    with started(tmp_path, "demo", "--nodes", "1", "--rounds", "1000000", "--dir", "disk/run") as demo:
        wait_until(lambda: bool(journals(small_disk / "run", "silo")), "a first node")
        fill(small_disk / "filler")
        assert demo.wait(60) == 7
        wait_until(lambda: not dwellers(tmp_path), "no process left", LEAVE_S)
    line = error_line((tmp_path / "err.txt").read_text())
    assert line.startswith("node ")
    assert "space" in line
    assert not list((small_disk / "run").rglob("model"))
    assert not list((small_disk / "run").rglob(".model*"))
