"""`waggle lab` as its users meet it: whole experiments, stopped and taken up again."""

# pyright: standard

import json
import os
import resource
import signal
from pathlib import Path

import msgspec
import pytest

from cli_run import started, waggle, wait_until
from waggledance.cli.lab import run_heat
from waggledance.cli.main import main
from waggledance.cli.minds import open_thinkers
from waggledance.lab.bank import make_bank, names_of
from waggledance.lab.folder import Folder, unfinished
from waggledance.lab.plan import read_plan, trials
from waggledance.lab.results import Results
from waggledance.tasks import open_sources

LAB = Path(__file__).parents[1] / "lab"
LAB_FILES = ("smoke", "choose", "paper", "regimes", "paper_smollm", "paper_qwen")
SCRIPTED = """
rounds = 20
nodes = 3
seeds = [1, 2]
tasks_per_source = 64
heldout_per_source = 8
node = { tasks = ["arithmetic"], policy = { kind = "scripted", success = 0.3 }, learner.kind = "none" }
[[configurations]]
name = "8/0"
node.mix = { own = 8, foreign = 0 }
[[configurations]]
name = "4/4"
node.evaluate.every_rounds = 5
"""
LEARNING = """
rounds = 4
nodes = 2
seeds = [3]
tasks_per_source = 64
heldout_per_source = 8
warm_up = { steps = 40, learning_rate = 2e-3 }
node.tasks = ["arithmetic"]
node.policy = { max_tokens = 8, completions = 6 }
node.learner = { learning_rate = 3e-4, kl_weight = 0.02 }
node.mix = { own = 2, foreign = 2 }
node.evaluate = { tasks = 8, every_rounds = 2 }
[[configurations]]
name = "2/2"
"""


def results_in(folder: Path) -> Results:
    return msgspec.json.decode((folder / "results.json").read_bytes(), type=Results)


def test_an_experiment_ends_with_results_table_and_figure(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "toy.toml").write_text(SCRIPTED)
    words = ["lab", str(tmp_path / "toy.toml"), "--dir", str(tmp_path / "run"), "--jobs", "1", "--json"]
    assert main(words) == 0
    out, err = capfd.readouterr()
    told = json.loads(out)
    results = results_in(tmp_path / "run")
    assert told == json.loads((tmp_path / "run" / "results.json").read_bytes())
    assert [(trial.configuration, trial.seed) for trial in results.trials] == [
        ("8/0", 1),
        ("4/4", 1),
        ("8/0", 2),
        ("4/4", 2),
    ]
    for trial in results.trials:
        assert 0.2 < trial.own.mean < 0.4
        assert trial.nodes == 3
        assert all(len(curve) == 20 for curve in trial.own_curves)
        assert (trial.foreign > 3.5) == (trial.configuration == "4/4")
        assert trial.heldout.rounds == ([0, 20] if trial.configuration == "8/0" else [0, 5, 10, 15, 20])
    assert (tmp_path / "run" / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert "| 4/4 | 8/0 |" in (tmp_path / "run" / "table.md").read_text()
    assert "240 of 240 node-rounds" in err
    assert "100.0%" in err


def test_it_goes_on_where_it_was_and_asks_for_nothing_twice(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "toy.toml").write_text(SCRIPTED)
    bank = tmp_path / "bank.json.gz"
    words = ["lab", str(tmp_path / "toy.toml"), "--dir", str(tmp_path / "run"), "--jobs", "1"]
    assert main([*words, "--prepare", str(bank)]) == 0
    assert bank.exists()
    assert not (tmp_path / "run").exists()
    assert main([*words, "--prepared", str(bank), "--no-report"]) == 0
    assert not (tmp_path / "run" / "results.json").exists()
    kept = {path: path.read_bytes() for path in (tmp_path / "run" / "trials").iterdir()}
    gone = tmp_path / "run" / "trials" / "4-4-2.json"
    gone.unlink()
    capfd.readouterr()
    assert main([*words]) == 0
    assert "60 of 60 node-rounds" in capfd.readouterr().err
    again = {path: path.read_bytes() for path in kept}
    assert again.pop(gone) != b""
    assert again == {path: content for path, content in kept.items() if path != gone}
    assert main([*words, "--rounds", "7"]) == 2
    assert "holds trials of another plan" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (["--rounds", "0"], 2, "--rounds 0: take 1 or more"),
        (["--jobs", "0"], 2, "--jobs 0: take 1 or more"),
        (["--seeds", "1,x"], 2, "--seeds 1,x: write whole numbers with commas between them"),
        (["--prepared", "none.gz"], 3, "cannot read none.gz"),
        (["--dir", "/proc/waggle"], 7, "cannot write"),
    ],
)
def test_what_is_wrong_is_one_line(
    flags: list[str], code: int, message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "toy.toml").write_text(SCRIPTED)
    words = ["lab", str(tmp_path / "toy.toml"), "--dir", str(tmp_path / "run"), "--jobs", "1"]
    assert main([*words, *flags]) == code
    assert message in capfd.readouterr().err.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_stacked_and_apart_give_the_same_experiment(tmp_path: Path) -> None:
    """Rewards to the last digit; the equality of weights is in test_lab_stack.py."""
    path = tmp_path / "toy.toml"
    path.write_text(LEARNING)
    [plan] = trials(read_plan(path))
    both = []
    for stacked in (True, False):
        folder = Folder(tmp_path / str(stacked))
        folder.keep_bank(make_bank(open_sources(["arithmetic"]), 64, 8))
        list(run_heat([plan], folder, stacked=stacked, device="cpu"))
        result = folder.result(plan)
        assert result is not None
        both.append(
            msgspec.structs.replace(
                result,
                cost=msgspec.structs.replace(result.cost, seconds_generating=0.0, seconds_learning=0.0),
            )
        )
    together, apart = both
    assert together == apart
    assert together.own.mean > 0.02
    assert together.foreign > 0
    assert together.cost.tokens_trained > 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_smoke_experiment_takes_less_than_two_minutes(tmp_path: Path) -> None:
    """Of all its processes' time: what else the machine does is not its fault."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = waggle(tmp_path, "lab", str(LAB / "smoke.toml"), "--dir", "run")
    assert done.returncode == 0, done.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime < 120
    assert {trial.configuration for trial in results_in(tmp_path / "run").trials} == {"8/0", "4/4"}
    assert "\n| 4/4 | 8/0 |" in done.stdout


@pytest.mark.slow
def test_a_killed_experiment_leaves_no_process_and_whole_files(tmp_path: Path) -> None:
    (tmp_path / "toy.toml").write_text(SCRIPTED.replace("rounds = 20", "rounds = 400"))
    words = ("lab", "toy.toml", "--dir", "run", "--jobs", "2")
    trials_folder = tmp_path / "run" / "trials"

    def one_is_done() -> bool:
        return trials_folder.exists() and any(path.suffix == ".json" for path in trials_folder.iterdir())

    with started(tmp_path, *words) as lab:
        wait_until(one_is_done, "a trial")
        children = _children(lab.pid)
        lab.send_signal(signal.SIGKILL)
        lab.wait(10)
    wait_until(lambda: not any(_is_alive(pid) for pid in children), "the end of its processes")
    done = waggle(tmp_path, *words, "--json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["trials"]) == 4


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"


def test_nodes_apart_reckon_as_their_file_says(tmp_path: Path) -> None:
    text = LEARNING.replace("warm_up", "stacked = false\n#")
    text += '[[configurations]]\nname = "halved"\nnode.policy.precision = "bfloat16"\n'
    (tmp_path / "toy.toml").write_text(text)
    seats = [trial.seats[0] for trial in trials(read_plan(tmp_path / "toy.toml"))]
    bank = make_bank(open_sources(["arithmetic"]), 8, 2)
    minds = open_thinkers(seats, bank, stacked=False, device="cpu")
    tasks = [bank.named(names_of(["arithmetic"]))[0].task(0)]
    full, halved = (minds.mind(k).policy.generate(tasks, 2, 1)[0][0].mean_logprob for k in (0, 1))
    assert full != halved == pytest.approx(full, rel=0.1)


@pytest.mark.parametrize("name", LAB_FILES)
def test_every_lab_file_reads_and_its_stored_trials_are_its_own(name: str) -> None:
    planned, stored = trials(read_plan(LAB / f"{name}.toml")), LAB / "results" / name
    assert planned
    assert unfinished(Folder(stored), planned) == ([] if stored.exists() else planned)


def test_every_lab_file_is_among_them() -> None:
    assert sorted(path.stem for path in LAB.glob("*.toml")) == sorted(LAB_FILES)
