"""`waggle watch`: live beside a run, over once more at any speed, found by itself."""

import json
import time
from pathlib import Path

import pytest

from cli_run import ENDLESS, LONE, error_line, started, waggle, wait_until
from view_run import entries, told
from waggledance.cli.main import main
from waggledance.cli.watching import Replay, Watching, journals_below, newest_run
from waggledance.events import Entry, Verified
from waggledance.journal import Journal
from waggledance.rollout import Author
from waggledance.view.state import SwarmState, fold_all
from waggledance.view.tally import seconds_of_silence, seconds_since_start


def write_run(folder: Path, told_entries: list[Entry]) -> None:
    """A journal a node, each in a folder of its own, as a run leaves them."""
    for author in sorted({entry.node for entry in told_entries}):
        (folder / author).mkdir(parents=True)
        mine = [entry for entry in told_entries if entry.node == author]
        times = iter([entry.at for entry in mine])
        journal = Journal(author, times.__next__, folder / author / "journal.jsonl")
        for entry in mine:
            journal.round = entry.round
            journal.tell(entry.event)
        journal.close()


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    for label, together in (("silo", False), ("swarm", True)):
        write_run(tmp_path / "demo" / label, list(entries(12, 12, 3, together)))
    return tmp_path / "demo"


def test_silo_and_swarm_are_found_side_by_side_and_a_run_by_its_folder_or_file(demo: Path) -> None:
    found = journals_below(demo)
    assert list(found) == ["silo", "swarm"]
    assert [path.parent.name for path in found["swarm"]] == ["n0", "n1", "n2"]
    assert list(journals_below(demo / "swarm")) == ["swarm"]
    journal = demo / "swarm" / "n1" / "journal.jsonl"
    assert journals_below(demo / "swarm" / "n1") == journals_below(journal) == {"n1": [journal]}


def test_the_newest_run_is_the_one_where_something_was_told_last(demo: Path) -> None:
    write_run(demo.parent / "older", [told(Author("bee"), 1, Verified(0.5, 1, 0.1))])
    late = demo / "silo" / "n2" / "journal.jsonl"
    with late.open("ab"):
        pass
    import os

    os.utime(late, (2e9, 2e9))
    assert newest_run(demo.parent).name == "demo"


def test_a_replay_tells_what_had_happened_by_then_and_ends_where_the_run_did(demo: Path) -> None:
    replay = Replay(journals_below(demo))
    replay.read_until(replay.started_at + 5)
    assert {node.own.rounds for swarm in replay.states.values() for node in swarm.nodes.values()} == {5}
    assert not replay.ended
    replay.read_until(float("inf"))
    assert replay.ended
    watching = Watching(journals_below(demo))
    watching.read()
    watching.close()
    assert replay.states["silo"].nodes == watching.states["silo"].nodes
    assert replay.states["swarm"].nodes == watching.states["swarm"].nodes


def test_nodes_that_come_later_are_watched_too(demo: Path) -> None:
    watching = Watching(journals_below(demo))
    watching.read()
    write_run(demo / "swarm", [told(Author("n9"), 1, Verified(0.5, 1, 0.1))])
    watching.follow(journals_below(demo))
    watching.read()
    watching.close()
    assert len(watching.states["swarm"].nodes) == 4
    assert watching.states["silo"].nodes[Author("n0")].own.rounds == 12


def test_a_run_that_has_ended_took_as_long_as_it_took_and_a_silent_one_is_told() -> None:
    ended = fold_all(SwarmState(), entries(12, 12, 2, together=True))
    running = fold_all(SwarmState(), entries(11, 12, 2, together=True))
    assert seconds_since_start([ended], 1_800_000_000.0) == 12.0
    assert seconds_since_start([running], 1_700_000_100.0) == 100.0
    assert seconds_of_silence([running], 1_700_000_100.0) == 89.0
    assert seconds_since_start([SwarmState()], 5.0) == seconds_of_silence([], 5.0) == 0.0


def test_a_run_that_has_ended_is_shown_once_and_told_in_numbers(
    demo: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["watch", str(demo), "--json"]) == 0
    out, err = capfd.readouterr()
    result = json.loads(out)
    assert (result["ended"], result["seconds"]) == (True, 12.0)
    assert result["swarms"]["swarm"]["nodes"] == 3
    assert "round 12/12" in err
    assert "done in 0:12" in err


def test_a_replay_goes_as_fast_as_it_is_told(demo: Path, capfd: pytest.CaptureFixture[str]) -> None:
    start = time.monotonic()
    assert main(["watch", "--replay", str(demo / "swarm"), "--speed", "24", "--json"]) == 0
    assert time.monotonic() - start >= 12 / 24
    assert json.loads(capfd.readouterr().out)["swarms"]["swarm"]["rounds"] == 12


REFUSED = [
    ("watch", 3, "no run below runs/"),
    ("watch gone", 3, "no journal in gone"),
    ("watch --speed 3", 2, "--speed 3: only a replay has a speed; add --replay FILE"),
    ("watch full --replay full", 2, "full and --replay full: name one of them"),
    ("watch --replay full --speed 0", 2, "--speed 0: take more than 0"),
    ("watch --replay full --speed nan", 2, "--speed nan: take more than 0"),
    ("watch --replay other.txt", 3, "other.txt is no journal of this version: line 1"),
]


@pytest.mark.parametrize(("line", "code", "message"), REFUSED, ids=[line for line, _, _ in REFUSED])
def test_what_cannot_be_watched_is_one_line(
    line: str,
    code: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "other.txt").write_text("hello\n")
    monkeypatch.chdir(tmp_path)
    assert main(line.split()) == code
    out, err = capfd.readouterr()
    assert out == ""
    assert message in error_line(err)


def test_it_looks_on_beside_a_working_node_and_leaves_it_working(tmp_path: Path) -> None:
    with started(tmp_path, "up", *LONE, *ENDLESS) as node:
        wait_until(lambda: (tmp_path / "run" / "journal.jsonl").exists(), "the node's journal")
        watched = tmp_path / "watched"
        watched.mkdir()
        with started(watched, "watch", "../run", "--json") as watch:
            wait_until(lambda: "round " in (watched / "err.txt").read_text(), "a line about the node")
            watch.terminate()
            assert watch.wait(20) == 0
        assert json.loads((watched / "out.txt").read_text())["ended"] is False
        assert node.poll() is None


def test_watching_needs_no_torch(demo: Path) -> None:
    done = waggle(demo.parent, "watch", "demo", "--json")
    assert done.returncode == 0, done.stderr
