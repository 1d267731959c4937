"""The audit: sound sources pass, each kind of unsound one fails by name, and a start asks only once."""

import itertools
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from waggledance.cli.audit import AUDITS, vet
from waggledance.cli.main import main
from waggledance.config import NodeConfig
from waggledance.errors import TaskError
from waggledance.seams import Failure, Pair, Source, Verdict
from waggledance.task import Digest, SourceName, Task
from waggledance.tasks import Arithmetic, Jsonl, open_sources
from waggledance.tasks.recipes import GYM, RECIPES, REFUSED, SCORER
from waggledance.verify import Uncaged
from waggledance.verify.audit import TRIVIAL, audit


class Wayward:
    """Arithmetic that goes wrong in the way it is told to."""

    name = SourceName("wayward")
    size = 1000

    def __init__(self, way: str = "") -> None:
        self._way = way
        self._numbers = itertools.count()
        self.digest = Digest(f"digest-{os.urandom(4).hex()}" if way == "differs" else "digest")

    def task(self, index: int) -> Task:
        if self._way == "cannot" and index == 500:
            raise TaskError("wayward 500: nothing within 10 s")
        return replace(Arithmetic().task(index), rule=SCORER if self._way == "pays" else "number")


class Judge:
    def __init__(self, verdict: Failure | None = None, pays: str = "") -> None:
        self._verdict, self._pays = verdict, f"<answer>{pays}</answer>"

    def verify(self, pairs: Sequence[Pair]) -> list[Verdict]:
        if self._verdict is not None:
            return [self._verdict] * len(pairs)
        return [tuple(float(text == self._pays) for text in texts) for _, texts in pairs]

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("way", "judge", "reason"),
    [
        ("", Uncaged(), ""),
        ("differs", Uncaged(), "differs from one process to the next"),
        ("cannot", Uncaged(), "cannot make task 500"),
        ("", Judge(Failure.TIMED_OUT), "its judge hangs at a trivial answer"),
        ("", Judge(Failure.KILLED), "its judge dies at a trivial answer"),
        ("", Judge(Failure.RAISED), "its judge raises at a trivial answer"),
        ("pays", Judge(pays="nan"), "pays for 'nan' where it is not the answer"),
        ("", Judge(pays="nan"), "pays for 'nan' where it is not the answer"),
    ],
)
def test_a_source_that_goes_wrong_fails_by_its_reason(way: str, judge: Judge, reason: str) -> None:
    finding = audit(Wayward(way), Wayward(way), judge)
    assert (finding.name, finding.ok, finding.reason) == ("wayward", not reason, reason)


def test_a_source_that_dawdles_fails() -> None:
    seconds = itertools.count(0, 3)  # three for whatever is timed
    finding = audit(Wayward(), Wayward(), Uncaged(), lambda: float(next(seconds)))
    assert (finding.ok, finding.reason, finding.worst_ms) == (False, "takes 3.0 s over one task", 3000.0)


def test_what_is_the_answer_may_be_paid(tmp_path: Path) -> None:
    """Of a file whose answers are all yes, yes is the answer."""
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(json.dumps({"question": f"q{n}", "answer": "yes"}) for n in range(40)))
    assert "yes" in TRIVIAL
    assert audit(Jsonl(path), Jsonl(path), Uncaged()).ok


def test_the_verb_says_what_it_found(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(json.dumps({"question": f"q{n}", "answer": f"a{n}"}) for n in range(40)))
    assert main(["audit", "arithmetic", f"jsonl:{path}", "--json"]) == 0
    out, err = capfd.readouterr()
    found = json.loads(out)
    assert [source["name"] for source in found["sources"]] == ["arithmetic", "jsonl:mine.jsonl"]
    for source in found["sources"]:
        assert source.keys() == {"name", "digest", "ok", "reason", "worst_ms"}
        assert source["ok"]
        assert source["reason"] == ""
        assert source["worst_ms"] > 0
    assert err.startswith("cage: ")
    assert main(["audit", "arithmetic"]) == 0
    assert capfd.readouterr().out.startswith("arithmetic ")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["audit", "--all", "arithmetic"], 2, "name sources or take --all, not both"),
        (["audit", "gym:codeio"], 5, "gym:codeio is refused: it differs from one process to the next"),
        (["audit", "gym:composite"], 5, "gym:composite is refused: it is made of other sources: name those"),
        (["audit", "nothing"], 5, "no task source is called 'nothing'"),
        (["audit", "jsonl:gone"], 3, "gone: No such file"),
    ],
)
def test_what_cannot_be_audited_is_one_line(
    words: list[str], code: int, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == code
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert message in err


class Counted(Wayward):
    """Counts how often it was asked."""

    asked = 0

    def task(self, index: int) -> Task:
        Counted.asked += 1
        return super().task(index)


def vetted(home: Path, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    def again(_words: object, _maker: object) -> list[Source]:
        return [source]

    monkeypatch.setattr("waggledance.cli.audit.open_sources", again)
    vet([source], NodeConfig(home=str(home)), Uncaged())


def test_a_start_asks_once_for_each_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Counted.asked = 0
    vetted(tmp_path / "home", Counted(), monkeypatch)
    assert Counted.asked == 24
    assert (tmp_path / "home" / AUDITS).exists()
    vetted(tmp_path / "home", Counted(), monkeypatch)
    assert Counted.asked == 24
    other = Counted()
    other.digest = Digest("another")
    vetted(tmp_path / "home", other, monkeypatch)
    assert Counted.asked == 48


@pytest.mark.parametrize("kept", [b"", b"{", b'{"sources": 7}', b"\xff\x00"])
def test_a_damaged_note_counts_as_none(kept: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Counted.asked = 0
    (tmp_path / AUDITS).write_bytes(kept)
    vetted(tmp_path, Counted(), monkeypatch)
    assert Counted.asked == 24


def test_a_home_that_cannot_be_written_is_no_reason_not_to_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    vetted(tmp_path / "file" / "home", Counted(), monkeypatch)


def test_a_source_that_fails_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):  # the second time from the note
        with pytest.raises(TaskError, match="wayward is refused: cannot make task 500; take it out of tasks"):
            vetted(tmp_path, Wayward("cannot"), monkeypatch)


def test_what_ships_is_known_and_sound() -> None:
    """A start with the sources that come with the package asks nothing."""
    sources = open_sources(["paper", "easy", "arithmetic"])
    vet(sources, NodeConfig(home="/proc/nowhere"), Judge(Failure.KILLED))


def test_every_dataset_is_known_or_refused() -> None:
    from reasoning_gym.factory import DATASETS  # pyright: ignore

    assert {*GYM, *REFUSED} == set(DATASETS)  # pyright: ignore
    assert not GYM.keys() & REFUSED.keys()
    assert len(RECIPES) == len(GYM) + 16


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_table_that_ships_is_what_the_audit_finds(capfd: pytest.CaptureFixture[str]) -> None:
    shipped = Path(__file__).parents[1] / "src" / "waggledance" / "tasks" / "audited.json"
    assert main(["audit", "--all", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)["sources"]
    kept = json.loads(shipped.read_bytes())["sources"]
    assert [(source["name"], source["digest"], source["ok"]) for source in found] == [
        (source["name"], source["digest"], source["ok"]) for source in kept
    ]


def test_help_shows_an_example(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["audit", "--help"])
    out = capfd.readouterr().out
    assert "\nexample:\n  waggle audit " in out
    assert "--all" in out
    assert "--json" in out
