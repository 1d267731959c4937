"""What outlives a kill: checkpoints are whole or not there, and the rounds since lead where the run was."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from killing import BELONGS, newest, parts, run_to
from swarm_run import advance, make_node
from test_checkpoint import small_disk
from waggledance.errors import ModelError, StorageError
from waggledance.lasting import FORMAT, MANIFEST, ROUNDS, STATE, Checkpoints, Record
from waggledance.swarm.memory import MemoryHub

KILLING = Path(__file__).with_name("killing.py")


def test_nothing_is_found_where_nothing_was_kept(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "none").find() is None


def test_what_was_kept_is_found(tmp_path: Path) -> None:
    for last in range(9):
        store = Checkpoints(tmp_path / str(last))
        run_to(store, last)
        store.close()
        assert newest(tmp_path / str(last))[0] == last


def test_two_are_kept(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    run_to(store, 14)
    store.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000000009", "000000012"]


def test_a_restart_goes_on_where_the_records_end(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    run_to(store, 4)
    store.close()
    again = Checkpoints(tmp_path)
    assert again.find() is not None
    again.resume()
    run_to(again, 8, after=4)
    again.close()
    assert newest(tmp_path)[0] == 8


@pytest.mark.parametrize("file", [STATE, MANIFEST])
@pytest.mark.parametrize("harm", ["gone", "empty", "cut", "flipped"])
def test_a_damaged_checkpoint_is_passed_over_and_no_round_is_lost(
    file: str, harm: str, tmp_path: Path
) -> None:
    store = Checkpoints(tmp_path)
    run_to(store, 8)
    store.close()
    spoil(tmp_path / "000000006" / file, harm)
    last, found = newest(tmp_path)
    assert (last, found.round) == (8, 3) or (file, harm) == (MANIFEST, "flipped")
    if found.round == 3:
        assert [place.partition(":")[0] for place in found.damaged] == ["000000006"]
    again = Checkpoints(tmp_path)
    assert again.find() is not None
    again.write_whole(8, BELONGS, parts(8), {})
    again.close()
    assert newest(tmp_path)[1].round == 8


def spoil(file: Path, harm: str) -> None:
    content = file.read_bytes()
    if harm == "gone":
        file.unlink()
    else:
        flipped = content[:10] + bytes([content[10] ^ 0x20]) + content[11:]
        file.write_bytes({"empty": b"", "cut": content[:-1], "flipped": flipped}[harm])


def test_nothing_but_damaged_ones_is_an_error_and_nothing_is_removed(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    run_to(store, 4)
    store.close()
    for place in tmp_path.iterdir():
        (place / STATE).write_bytes(b"")
    with pytest.raises(
        StorageError, match=r"^no checkpoint in .* can be read \(000000003: state\.msgpack is not"
    ):
        Checkpoints(tmp_path).find()
    assert len(list(tmp_path.iterdir())) == 2


def test_a_newer_versions_checkpoint_is_refused_with_both_numbers(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    run_to(store, 0)
    store.close()
    (tmp_path / "000000000" / MANIFEST).write_bytes(msgspec.json.encode({"format": FORMAT + 1, "new": 1}))
    with pytest.raises(
        ModelError, match=f"newer version .format {FORMAT + 1}, this one reads {FORMAT}.; update"
    ):
        Checkpoints(tmp_path).find()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, 2000), junk=st.binary(max_size=40))
def test_torn_records_are_cut_off_wherever_they_are_torn(cut: int, junk: bytes, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "run", ignore_errors=True)
    store = Checkpoints(tmp_path / "run")
    run_to(store, 6, whole_every=100)
    store.close()
    rounds = tmp_path / "run" / "000000000" / ROUNDS
    content = rounds.read_bytes()
    ends = [len(content) * n // 6 for n in range(7)]  # records of one length
    kept = content[: min(cut, len(content))]
    rounds.write_bytes(kept + junk)
    last, _ = newest(tmp_path / "run")
    assert last >= sum(end <= len(kept) for end in ends) - 1
    again = Checkpoints(tmp_path / "run")
    again.find()
    again.resume()
    run_to(again, last + 2, after=last, whole_every=100)
    again.close()
    assert newest(tmp_path / "run")[0] == last + 2


def kills(*words: str) -> list[int]:
    """What the killing came to, in a slim process of its own: it forks once a kill."""
    done = subprocess.run(
        [sys.executable, "-W", "error", KILLING, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()]


def test_a_hundred_kills_at_any_moment_lose_nothing(tmp_path: Path) -> None:
    dead, rounds = kills("anywhere", "100", "1")
    assert dead > 75
    assert rounds > 100


@pytest.mark.slow
def test_a_thousand_kills_at_any_moment_lose_nothing(tmp_path: Path) -> None:
    dead, rounds = kills("anywhere", "1300", "2")
    assert dead > 1000
    assert rounds > 1000


@pytest.mark.slow
def test_a_kill_at_every_single_step_of_writing_loses_nothing(tmp_path: Path) -> None:
    """The write that replaces the older of two checkpoints, killed at its first call, its second, …"""
    [steps] = kills("everywhere")
    assert steps > 300


def refusal(store: Checkpoints, reached: int) -> str | None:
    """One more round, or why not."""
    try:
        run_to(store, reached + 1, after=reached, whole_every=40)
    except StorageError as error:
        return str(error)
    return None


@pytest.mark.parametrize("kilobytes", [8, 24, 40, 64])
def test_a_full_disk_keeps_the_checkpoints_of_before(kilobytes: int, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", f"size={kilobytes}k") as disk:
        store = Checkpoints(disk / "run")
        reached = -1
        while (refused := refusal(store, reached)) is None:
            reached += 1
        assert re.fullmatch(r"disk full: no room for a checkpoint at .*; free some space", refused)
        store.close()
        if reached >= 0:  # a record may have found room, and the whole checkpoint after it none
            assert newest(disk / "run")[0] in (reached, reached + 1)


def test_a_node_that_is_replayed_is_where_it_was() -> None:
    """Pool, appetite and round: from a checkpoint, and the records of the rounds since."""
    hub = MemoryHub()
    nodes = [make_node(f"n{k}", hub, success=0.3) for k in range(3)]
    advance(nodes, 4)
    start, records = nodes[0].kept(), list[Record]()
    for _ in range(5):
        advance(nodes, 1)
        records.append(msgspec.msgpack.decode(msgspec.msgpack.encode(nodes[0].record()), type=Record))
    again = make_node("n0", MemoryHub(), success=0.3)
    again.restore(4, start)
    for each in records:
        again.replay(each)
    assert again.kept() == nodes[0].kept()
    assert again.round_number == 9
    assert [task.index for task in again.draw()] == [task.index for task in nodes[0].draw()]
    assert len(nodes[0].kept()["pool"]) > 100
