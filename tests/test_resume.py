"""A run goes on where it was: by itself, number for number, whatever ended it."""

import contextlib
import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from cli_run import (
    ENDLESS,
    LONE,
    SCRIPTED,
    entries,
    error_line,
    fill,
    generator,
    loads,
    started,
    told,
    waggle,
    wait_until,
)
from test_checkpoint import small_disk
from waggledance.checkpoint import write_tensors
from waggledance.cli.assemble import open_place
from waggledance.cli.keeping import CHECKPOINTS
from waggledance.cli.training import JOURNAL, MODEL, SETTINGS, train
from waggledance.config import NodeConfig, check_config, write_config
from waggledance.errors import ModelError
from waggledance.events import (
    Entry,
    Evaluated,
    Finished,
    Generated,
    Learned,
    Resumed,
    Said,
    Started,
    Stuck,
    Unsaved,
    Verified,
)
from waggledance.journal import Journal
from waggledance.lasting import (
    MANIFEST,
    TENSORS,
    Checkpoints,
    Manifest,
    _facts,  # pyright: ignore[reportPrivateUsage]
)

STOP_S = 10.0
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
"""A disk in memory gives out whole pages; a file's last one may be filled up when no more are left."""
RUN = Path("run") / JOURNAL


def lone(**changes: object) -> NodeConfig:
    tiny = {
        "rounds": 5,
        "seed": 4,
        "tasks": ("easy:count_bits",),
        "threads": 1,
        "swarm": {"kind": "none"},
        "policy": {"max_tokens": 16, "completions": 64},  # so many that some are right
        "learner": {"learning_rate": 1e-3, "kl_weight": 0.1},
        "mix": {"own": 2, "foreign": 0},
        "evaluate": {"tasks": 2},
    }
    return check_config({**tiny, **changes})


def work(config: NodeConfig, folder: Path, stopping: Callable[[], bool] = lambda: False) -> list[Entry]:
    folder.mkdir(exist_ok=True)
    place = open_place(config, folder)
    journal = Journal(place.author, lambda: 0.0, folder / JOURNAL)
    try:
        train(config, place, journal, stopping)
    finally:
        journal.close()
    return entries(folder / JOURNAL)


def snapshot_at(round_number: int, folder: Path, image: Path) -> Callable[[], bool]:
    """Copies the folder as a power cut would leave it, when so many rounds are done."""

    def look() -> bool:
        if len(told(folder / JOURNAL, Learned)) == round_number and not image.exists():
            shutil.copytree(folder, image)
        return False

    return look


def weights_of(folder: Path) -> bytes:
    return (folder / MODEL / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("every_s", "learned_again"), [(0.0, {0, 1, 2}), (10_000.0, {3})], ids=["whole", "records"]
)
def test_a_run_that_was_cut_is_number_for_number_the_one_that_was_not(
    every_s: float, learned_again: set[int], tmp_path: Path
) -> None:
    config = lone(checkpoint={"every_s": every_s})
    whole = work(config, tmp_path / "a", snapshot_at(3, tmp_path / "a", tmp_path / "b"))
    steps = [event.groups > 0 for event in told(tmp_path / "a" / JOURNAL, Learned)]
    assert any(steps[:3]), "nothing was learned before the cut"
    assert any(steps[3:]), "nothing was learned after it"
    cut = work(config, tmp_path / "b")
    assert weights_of(tmp_path / "a") == weights_of(tmp_path / "b")
    [resumed] = told(tmp_path / "b" / JOURNAL, Resumed)
    assert (resumed.round, resumed.damaged) == (3, ())
    assert resumed.learned_again in learned_again
    assert [timeless(entry) for entry in cut if is_of_rounds(entry)] == [
        timeless(entry) for entry in whole if is_of_rounds(entry)
    ]
    assert len(told(tmp_path / "b" / JOURNAL, Started)) == 2
    ends = [Checkpoints(tmp_path / side / CHECKPOINTS).find() for side in "ab"]
    assert ends[0] is not None
    assert ends[1] is not None
    assert ends[0].parts == ends[1].parts
    assert sorted(ends[0].tensors) == sorted(ends[1].tensors)
    for name, tensor in ends[0].tensors.items():
        assert tensor.equal(ends[1].tensors[name]), name
    assert sum(name.startswith("optimiser/exp_avg_sq/") for name in ends[0].tensors) > 5


def is_of_rounds(entry: Entry) -> bool:
    return isinstance(entry.event, Generated | Verified | Said | Learned | Evaluated)


def timeless(entry: Entry) -> Entry:
    if isinstance(entry.event, Generated | Verified | Learned | Evaluated):
        return msgspec.structs.replace(entry, event=msgspec.structs.replace(entry.event, seconds=0.0))
    return entry


def test_a_finished_run_has_nothing_left_to_do_and_goes_on_when_it_may(tmp_path: Path) -> None:
    command = ("up", *LONE, "--rounds", "3", "--seed", "5")
    assert waggle(tmp_path, *command).returncode == 0
    assert waggle(tmp_path, *command).returncode == 0
    assert len(told(tmp_path / RUN, Learned)) == 3
    assert len(told(tmp_path / RUN, Evaluated)) == 2
    # All settings but the one that is given are the run's.
    again = waggle(tmp_path, "up", "--dir", "run", "--rounds", "5", "--json")
    assert (again.returncode, json.loads(again.stdout)["rounds"]) == (0, 5)
    assert [entry.round for entry in entries(tmp_path / RUN) if isinstance(entry.event, Learned)] == [
        1,
        2,
        3,
        4,
        5,
    ]
    assert [event.seed for event in told(tmp_path / RUN, Started)] == [5, 5, 5]


def test_of_two_runs_that_want_one_folder_one_gets_it(tmp_path: Path) -> None:
    with started(tmp_path, "up", *LONE, *ENDLESS) as node:
        wait_until(lambda: len(told(tmp_path / RUN, Learned)) > 3, "some rounds")
        other = waggle(tmp_path, "up", *LONE, *ENDLESS)
        assert (other.returncode, other.stdout) == (2, "")
        assert error_line(other.stderr).startswith("run is another running node's; stop it, or name another")
        node.send_signal(signal.SIGTERM)
        assert node.wait(STOP_S) == 0
    assert told(tmp_path / RUN, Finished) == [Finished("stopped")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        (
            "--policy.model toy",
            2,
            "run holds a run with policy.model = 'tiny', not 'toy'; go on with that one",
        ),
        ("--learner.kind none", 2, "run holds a run with learner.kind = 'grpo', not 'none'"),
    ],
)
def test_what_is_another_run_is_refused_and_the_old_one_can_still_go_on(
    line: str, code: int, said: str, tmp_path: Path
) -> None:
    config = lone(rounds=1)
    work(config, tmp_path / "run")
    (tmp_path / "run" / SETTINGS).write_text(write_config(config))
    shutil.copytree(Path(__file__).parents[1] / "src/waggledance/tiny", tmp_path / "toy")
    done = waggle(tmp_path, "up", "--dir", "run", "--rounds", "2", *line.replace("toy", "./toy").split())
    assert (done.returncode, done.stdout) == (code, "")
    assert said.replace("toy", "./toy") in error_line(done.stderr)


def test_a_checkpoint_of_other_weights_is_one_line(tmp_path: Path) -> None:
    """The name is the same, what it names is not."""
    work(lone(rounds=1), tmp_path / "run")
    place = max((tmp_path / "run" / CHECKPOINTS).iterdir())
    found = Checkpoints(tmp_path / "run" / CHECKPOINTS).find()
    assert found is not None
    tensors = dict(found.tensors)
    name = next(name for name in tensors if name.startswith("weight/") and tensors[name].ndim == 2)
    write_tensors(place / TENSORS, {**tensors, name: tensors[name][:1].clone()})
    (place / MANIFEST).write_bytes(mended(place))
    with pytest.raises(
        ModelError, match=r"^the checkpoint is of another model: 1 weights differ, .* for one"
    ):
        work(lone(rounds=2), tmp_path / "run")


def mended(place: Path) -> bytes:
    manifest = msgspec.json.decode((place / MANIFEST).read_bytes(), type=Manifest)
    files = {name: _facts(place / name) for name in manifest.files}
    return msgspec.json.encode(msgspec.structs.replace(manifest, files=files))


def killed_and_started(tmp_path: Path, kills: int, seed: int) -> list[Entry]:
    draw, journal = random.Random(seed), tmp_path / RUN
    for _ in range(kills):
        with started(tmp_path, "up", *LONE, *ENDLESS, "--checkpoint.every_s", "0.02") as node:
            wait_for_rounds(journal, 1)
            time.sleep(draw.random() * 0.2)  # any moment
            node.kill()
            assert node.wait(STOP_S) == -signal.SIGKILL
    done = waggle(tmp_path, "up", "--dir", "run", "--rounds", str(_last_round(journal) + 5))
    assert done.returncode == 0, done.stderr
    return entries(journal)


def wait_for_rounds(journal: Path, more: int) -> None:
    """Since now."""
    before = len(told(journal, Learned)) if journal.exists() else 0
    wait_until(lambda: journal.exists() and len(told(journal, Learned)) >= before + more, "some rounds")


def _last_round(journal: Path) -> int:
    return max(entry.round for entry in entries(journal))


def assert_no_round_is_lost(journal: list[Entry]) -> None:
    """Each start goes on after the newest round that was done, or after the one before it."""
    done, starts = 0, 0
    for entry in journal:
        if isinstance(entry.event, Resumed):
            starts += 1
            assert done - 1 <= entry.event.round <= done + 1
            assert entry.event.damaged == ()
            done = entry.event.round
        if isinstance(entry.event, Learned):
            assert entry.round == done + 1
            done = entry.round
    assert starts > 0
    assert done > starts


def test_kill_9_costs_a_round_at_most(tmp_path: Path) -> None:
    assert_no_round_is_lost(killed_and_started(tmp_path, 2, seed=1))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_twenty_times_kill_9_cost_a_round_each_at_most(tmp_path: Path) -> None:
    assert_no_round_is_lost(killed_and_started(tmp_path, 20, seed=2))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_training_node_outlives_kill_9(tmp_path: Path) -> None:
    tiny = ("--swarm.kind", "none", "--tasks", "easy:gcd", "--policy.max_tokens", "4", "--dir", "run")
    draw = random.Random(3)
    for _ in range(4):
        with started(tmp_path, "up", *tiny, *ENDLESS, "--checkpoint.every_s", "0.3") as node:
            wait_for_rounds(tmp_path / RUN, 1)
            time.sleep(draw.random())
            node.kill()
            node.wait(STOP_S)
    with started(tmp_path, "up", *tiny, *ENDLESS) as node:
        wait_for_rounds(tmp_path / RUN, 3)
        node.send_signal(signal.SIGINT)
        assert node.wait(STOP_S) == 0
    assert_no_round_is_lost(entries(tmp_path / RUN))
    loads(tmp_path / "run" / MODEL)
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == sorted(
        ["checkpoints", "journal.jsonl", "ledger.json", "model", "settings.toml", "status.json"]
    )


@pytest.mark.slow
def test_the_identity_is_the_same_after_a_restart(tmp_path: Path) -> None:
    command = ("up", *SCRIPTED, "--swarm.interface", "lo", "--dir", "run", "--rounds")
    for rounds in ("2", "4"):
        assert waggle(tmp_path, *command, rounds).returncode == 0
    assert len({entry.node for entry in entries(tmp_path / RUN)}) == 1
    assert [event.round for event in told(tmp_path / RUN, Resumed)] == [2]


@pytest.mark.slow
def test_on_a_full_disk_training_goes_on_and_is_kept_again_when_there_is_room(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    with small_disk(tmp_path / "disk", "size=64m") as disk:
        journal = disk / "run" / JOURNAL
        # Whole checkpoints only when one must be: one that the filler interrupts would make room again.
        # Rounds of a model, because scripted ones tell a megabyte a second, more than a journal holds back.
        tiny = ("up", "--swarm.kind", "none", "--tasks", "easy:gcd", "--dir", "disk/run", *ENDLESS)
        with started(tmp_path, *tiny, "--checkpoint.every_s", "1000") as node:
            wait_until(lambda: journal.exists() and len(told(journal, Learned)) > 3, "some rounds")
            fill(disk / "filler")
            wait_until(lambda: "training goes on" in (tmp_path / "err.txt").read_text(), "it is said")
            said = next(
                line for line in (tmp_path / "err.txt").read_text().splitlines() if "disk full" in line
            )
            assert said.startswith("waggle: disk full: no room for a checkpoint at disk/run/checkpoints")
            wait_until(lambda: os.stat(journal).st_size % PAGE_BYTES == 0, "no room for the journal")
            full = os.stat(journal).st_size
            time.sleep(0.3)  # rounds are done meanwhile, and told nowhere
            assert os.stat(journal).st_size == full
            assert node.poll() is None
            (disk / "filler").unlink()
            wait_until(
                lambda: "rounds are kept again" in (tmp_path / "err.txt").read_text(), "kept again", 30
            )
            node.send_signal(signal.SIGTERM)
            assert node.wait(STOP_S) == 0
        full_at, room_at = [
            (entry.round, entry.event.error) for entry in entries(journal) if isinstance(entry.event, Unsaved)
        ]
        assert full_at[1] is not None
        assert room_at[1] is None
        record_property("rounds on a full disk", room_at[0] - full_at[0])
        rounds = [entry.round for entry in entries(journal) if isinstance(entry.event, Learned)]
        assert rounds == list(range(1, len(rounds) + 1))
        found = Checkpoints(disk / "run" / CHECKPOINTS).find()
        assert found is not None
        assert found.round == rounds[-1]


@pytest.mark.slow
def test_a_model_that_finds_no_room_at_the_end_has_its_own_exit_code(tmp_path: Path) -> None:
    tiny = ("--swarm.kind", "none", "--tasks", "easy:gcd", "--policy.max_tokens", "4", "--dir", "disk/run")
    with small_disk(tmp_path / "disk", "size=64m") as disk:
        journal = disk / "run" / JOURNAL
        with started(tmp_path, "up", *tiny, *ENDLESS, "--checkpoint.every_s", "1000") as node:
            wait_until(lambda: journal.exists() and len(told(journal, Learned)) > 2, "some rounds")
            fill(disk / "filler")
            wait_until(lambda: "training goes on" in (tmp_path / "err.txt").read_text(), "it is said")
            node.send_signal(signal.SIGTERM)
            assert node.wait(STOP_S) == 7
        assert error_line((tmp_path / "err.txt").read_text()).startswith("disk full: the model needs 3 MB")
        assert Checkpoints(disk / "run" / CHECKPOINTS).find() is not None


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_node_leaves_in_time_out_of_a_round_that_never_ends(
    number: signal.Signals, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Its questions come from a child that is stopped: nothing in this round will ever happen."""
    scripted = ("--policy.kind", "scripted", "--learner.kind", "none", "--tasks", "easy:gcd")
    command = (
        "up",
        *scripted,
        "--swarm.kind",
        "none",
        "--dir",
        "run",
        *ENDLESS,
        "--stuck_after_s",
        "1",
        "--json",
    )
    with started(tmp_path, *command) as node:
        wait_until(
            lambda: (tmp_path / RUN).exists() and len(told(tmp_path / RUN, Learned)) > 3, "some rounds"
        )
        questions = generator(tmp_path)
        os.kill(questions, signal.SIGSTOP)
        # A bark at the start is another one: loading may be slow.
        wait_until(lambda: "stuck in generate" in (tmp_path / "err.txt").read_text(), "the watchdog barks")
        begun = time.monotonic()
        node.send_signal(number)
        assert node.wait(STOP_S) == 0
        took = time.monotonic() - begun
        assert took < STOP_S
        record_property("seconds from the signal to the exit", round(took, 1))
        with contextlib.suppress(ProcessLookupError):
            os.kill(questions, signal.SIGKILL)
    assert json.loads((tmp_path / "out.txt").read_text())["ended"] == "stopped"
    *_, stuck = told(tmp_path / RUN, Stuck)
    assert stuck.phase == "generate"
    assert stuck.where.startswith("tasks/child.py:")
    assert 1 <= stuck.seconds < 10
    assert_no_round_is_lost([*entries(tmp_path / RUN), *resumed_from(tmp_path)])


def resumed_from(tmp_path: Path) -> list[Entry]:
    """The entries of another start."""
    before = len(entries(tmp_path / RUN))
    last = _last_round(tmp_path / RUN)
    done = waggle(tmp_path, "up", "--dir", "run", "--rounds", str(last + 3))
    assert done.returncode == 0, done.stderr
    return entries(tmp_path / RUN)[before:]


@pytest.mark.slow
def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    scripted = ("--policy.kind", "scripted", "--learner.kind", "none", "--tasks", "easy:gcd")
    with started(tmp_path, "up", *scripted, "--swarm.kind", "none", "--dir", "run", *ENDLESS) as node:
        wait_until(
            lambda: (tmp_path / RUN).exists() and len(told(tmp_path / RUN, Learned)) > 3, "some rounds"
        )
        questions = generator(tmp_path)
        os.kill(questions, signal.SIGSTOP)
        node.send_signal(signal.SIGINT)
        time.sleep(0.2)
        node.send_signal(signal.SIGINT)
        assert node.wait(2) == 130
        with contextlib.suppress(ProcessLookupError):
            os.kill(questions, signal.SIGKILL)
    assert error_line((tmp_path / "err.txt").read_text()) == "interrupted"
