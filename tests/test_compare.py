"""`waggle compare`: runs and trials, held against each other."""

import json
from pathlib import Path

import msgspec
import pytest

from test_lab import trial_of
from waggledance.cli.main import main
from waggledance.events import Evaluated, Learned, Verified
from waggledance.journal import Journal
from waggledance.lab.results import results_of
from waggledance.rollout import Author


def write_run(folder: Path, *own: float, heldout: float | None = None) -> Path:
    folder.mkdir(parents=True)
    journal = Journal(Author(folder.name), lambda: 0.0, folder / "journal.jsonl")
    for reward in (0.0, heldout) if heldout is not None else ():
        journal.tell(Evaluated(reward, {"a": reward}, 4, 0.1))
    for round_, reward in enumerate(own, 1):
        journal.round = round_
        journal.tell(Verified(reward, 1, 0.0))
        journal.tell(Learned(2 * reward, 1, 1, 0.0, 0.0, 0.0, 0.0, 0.0))
    journal.close()
    return folder


def compared(capfd: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["compare", *words]) == 0
    return capfd.readouterr().out


def test_two_runs_say_nothing_of_chance(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    one, two = write_run(tmp_path / "one", 0.1, 0.3), write_run(tmp_path / "two", 0.4, 0.6)
    assert compared(capfd, str(one), str(two)).splitlines() == [
        "own reward 0.2 → 0.5 (+150%): one pair says nothing of chance; run more seeds",
        "trained reward 0.4 → 1 (+150%): one pair says nothing of chance; run more seeds",
        "held-out reward: not measured in both",
    ]


def test_folders_of_runs_are_paired_by_name(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name, alone, together in (("n0", 0.1, 0.3), ("n1", 0.2, 0.4), ("n2", 0.1, 0.4)):
        write_run(tmp_path / "silo" / name, alone, heldout=alone)
        write_run(tmp_path / "swarm" / name, together, heldout=together)
    write_run(tmp_path / "swarm" / "n9", 99.0)
    words = [str(tmp_path / "silo"), str(tmp_path / "swarm")]
    told = json.loads(compared(capfd, *words, "--json"))
    assert told["own"]["pairs"] == 3
    assert told["own"]["difference"] == pytest.approx(0.7 / 3)
    assert told["own"]["difference_low"] > 0
    assert told["heldout"]["ahead"] == 3
    said = compared(capfd, *words).splitlines()
    assert said[0].startswith("own reward 0.1333 → 0.3667 (+175%): better; 95 % interval of the difference +")
    assert said[0].endswith("ahead in 3 of 3, effect very large (d = 4.04)")


def test_trials_of_a_lab_are_paired_by_seed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = [
        *(trial_of("8/0", seed, [0.1 * seed]) for seed in (1, 2, 3)),
        *(trial_of("4/4", seed, [0.2 * seed]) for seed in (2, 3, 4)),
    ]
    results = results_of("toy", "0", "here", {"8/0": "8/0", "4/4": "8/0"}, found)
    (tmp_path / "results.json").write_bytes(msgspec.json.encode(results))
    told = json.loads(compared(capfd, f"{tmp_path}:8/0", f"{tmp_path}:4/4", "--json"))
    assert (told["own"]["pairs"], told["own"]["gain"]) == (2, pytest.approx(1.0))
    assert main(["compare", f"{tmp_path}:8/0", f"{tmp_path}:5/5"]) == 2
    assert "has no configuration '5/5'; known: 4/4, 8/0" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("before", "after", "code", "message"),
    [
        ("gone", "a", 3, "gone is no run (it has no journal.jsonl)"),
        ("left", "right", 2, "left and right have no pair: n0, n1 and n2, n3; runs are paired by"),
        ("broken:x", "a", 3, "is no result of a lab"),
    ],
)
def test_what_cannot_be_compared_is_one_line(
    before: str,
    after: str,
    code: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(Path("a"), 0.1)
    for path in ("left/n0", "left/n1", "right/n2", "right/n3"):
        write_run(Path(path), 0.1)
    Path("broken").mkdir()
    Path("broken/results.json").write_text("{}")
    assert main(["compare", before, after]) == code
    err = capfd.readouterr().err
    assert message in err
    assert err.count("\n") == 1
