"""The command line as its users meet it: one line and the documented code for whatever goes wrong."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli_run import (
    ENDLESS,
    LONE,
    SCRIPTED,
    dwellers,
    entries,
    environment,
    error_line,
    loads,
    started,
    told,
    waggle,
    wait_until,
)
from waggledance import __version__
from waggledance.cli.main import main
from waggledance.errors import UsageError, WaggleError
from waggledance.events import Evaluated, Finished, Learned, Sampled, Saved, Started, Verified
from waggledance.rollout import Author, name_of
from waggledance.swarm.endpoint import free_loopback_endpoint

STOP_S = 10.0
"""How long a node may take to leave."""

REFUSED = [
    ("", 2, "the following arguments are required: VERB; see waggle --help"),
    ("dmeo", 2, "invalid choice: 'dmeo' (choose from 'demo', 'up'"),
    ("--foo demo", 2, "unknown argument --foo"),
    ("demo --nodse 3", 2, "unknown argument --nodse; did you mean --nodes?"),
    ("demo --node 3", 2, "unknown argument --node; did you mean --nodes?"),
    ("demo --nodes 0", 2, "--nodes 0: take 1 to 64"),
    ("demo --nodes -2", 2, "--nodes -2: take 1 to 64"),
    ("demo --nodes 65", 2, "--nodes 65: take 1 to 64"),
    ("demo --nodes x", 2, "argument --nodes: invalid int value: 'x'"),
    ("demo --rounds 0", 2, "--rounds 0: take 1 to 1000000"),
    ("demo --seed -1", 2, "--seed -1: take 0 to"),
    ("demo --mix 4", 2, "--mix 4: write own/foreign groups a round, as in 4/4"),
    ("demo --mix 4/x", 2, "--mix 4/x: write own/foreign"),
    ("demo --mix 0/4", 2, "own is at least 1"),
    ("demo --mix -1/4", 2, "expected one argument"),
    ("demo --mix 999/999", 2, "both together 1024 at most"),
    ("demo --dir full", 2, "full is not empty; name another folder with --dir"),
    ("demo --dir file", 7, "cannot use file: Not a directory; name another with --dir"),
    ("demo --dir file/below", 7, "Not a directory"),
    ("demo --dir /proc/waggle", 7, "name another"),
    ("demo --dir LONG", 7, "File name too long"),
    ("demo extra", 2, "unknown argument extra"),
    ("up --rouns 3", 2, "unknown argument --rouns; did you mean --rounds?"),
    ("up --policy.temprature=1", 2, "--policy.temprature=1; did you mean --policy.temperature?"),
    ("up --rounds -1", 2, "rounds = '-1': expected int >= 0"),
    ("up --rounds", 2, "argument --rounds: expected one argument"),
    ("up --policy.kind foo", 2, "policy.kind = 'foo': take hf or endpoint or scripted"),
    ("up --name ../up", 2, "name = '../up': expected letters, digits and ._-"),
    ("up bad.toml", 2, "bad.toml: unknown key rouns; did you mean rounds?"),
    ("up latin.toml", 2, "latin.toml is not TOML: 'utf-8' codec can't decode"),
    ("up nowhere.toml", 3, "cannot read nowhere.toml: No such file or directory"),
    ("up full", 3, "cannot read full: Is a directory"),
    ("up one.toml two.toml", 2, "unknown argument two.toml"),
    ("up SCRIPTED --dir file", 7, "cannot write to file: File exists; name another with --dir"),
    ("up SCRIPTED --dir /proc/waggle", 7, "cannot write to /proc/waggle: No such file or directory"),
    ("up SCRIPTED --dir LONG", 7, "File name too long"),
    ("up SCRIPTED --dir new --tasks arithmtic", 5, "is called 'arithmtic'; did you mean arithmetic?"),
    ("up SCRIPTED --dir new --tasks jsonl:gone", 3, "gone: No such file or directory"),
    ("up SCRIPTED --dir new --tasks ,", 2, "tasks = []: expected array of length >= 1"),
    ("up SCRIPTED --dir new --learner.kind grpo", 2, "'grpo': a scripted policy has no weights"),
    ("up SCRIPTED --dir new --swarm.kind zenoh --swarm.listen tcp/no", 2, "'tcp/no' is no endpoint"),
    ("up --swarm.kind none --dir new --policy.model ./gone", 3, "model folder ./gone does not exist"),
    ("up --dir \udcff", 2, "is not UTF-8"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "code", "message"), REFUSED, ids=[line for line, _, _ in REFUSED])
def test_a_wrong_command_is_one_line_with_its_code_and_nothing_is_written(
    line: str,
    code: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thing").touch()
    (tmp_path / "file").touch()
    (tmp_path / "bad.toml").write_text("rouns = 3")
    (tmp_path / "latin.toml").write_bytes(b"name = '\xe9'")
    before = set(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path)
    scripted = " ".join([*SCRIPTED, "--swarm.kind none"])
    words = line.replace("SCRIPTED", scripted).replace("LONG", "long" * 100).split()
    assert main(words) == code
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("waggle: ")
    assert err.count("\n") == 1
    assert message in err
    assert set(tmp_path.rglob("*")) == before


def test_an_unknown_variable_is_refused_as_an_unknown_flag_is(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WAGGLE_MIX_FORIEGN", "2")
    assert main(["up"]) == 2
    assert capfd.readouterr() == (
        "",
        "waggle: environment: unknown WAGGLE_MIX_FORIEGN; did you mean WAGGLE_MIX_FOREIGN?\n",
    )


def test_an_error_stays_one_line_whatever_it_repeats(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for words in (["demo", "--\nfoo\x1b[2J"], ["up", str(tmp_path / "a\nb\x1b[2J")]):
        assert main(words) in (2, 3)
        out, err = capfd.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert "\x1b" not in err


def test_each_kind_of_error_has_a_code_of_its_own_that_the_help_explains(
    capfd: pytest.CaptureFixture[str],
) -> None:
    codes = [kind.exit_code for kind in WaggleError.__subclasses__()]
    assert len(set(codes)) == len(codes)
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    described = capfd.readouterr().out.partition("exit codes:")[2]
    assert {int(code) for code in re.findall(r"(?:^|  )(\d+) [a-z]", described, re.MULTILINE)} == {
        0,
        70,
        130,
        *codes,
    }


@pytest.mark.parametrize("verb", ["demo", "up"])
def test_help_shows_an_example_and_every_flag(verb: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([verb, "--help"])
    out = capfd.readouterr().out
    assert "\nexample:\n  waggle " in out or "\n  waggle " in out.partition("example")[2]
    for flag in ("--dir", "--json", "--rounds", "--seed"):
        assert flag in out


def test_a_bug_of_ours_shows_its_traceback_and_has_its_own_code(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(_options: object) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr("waggledance.cli.up.run", broken)
    assert main(["up"]) == 70
    err = capfd.readouterr().err
    assert err.startswith("Traceback")
    assert err.endswith("waggle: this is a bug of ours; please report the lines above\n")


def test_version_and_a_wrong_flag_as_processes(tmp_path: Path) -> None:
    version = waggle(tmp_path, "--version")
    assert (version.returncode, version.stdout, version.stderr) == (0, f"waggle {__version__}\n", "")
    wrong = waggle(tmp_path, "up", "--rouns", "3")
    assert (wrong.returncode, wrong.stdout) == (UsageError.exit_code, "")
    assert wrong.stderr == "waggle: unknown argument --rouns; did you mean --rounds?\n"


def test_a_reader_that_has_gone_is_no_bug(tmp_path: Path) -> None:
    command = f"{sys.executable} -m waggledance up {' '.join(LONE)} --rounds 1 --json 2> err.txt"
    piped = f"{command} | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", piped], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() in ("0", "141")
    assert "Error" not in (tmp_path / "err.txt").read_text()


def test_a_scripted_node_does_its_rounds_without_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from waggledance.cli.main import main; code = main(sys.argv[1:]);"
        "assert not {'torch', 'transformers', 'reasoning_gym'} & sys.modules.keys(); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "up", *LONE, "--rounds", "5", "--policy.success", "0.5", "--json"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    result = json.loads(done.stdout)
    assert result["rounds"] == 5
    assert result["ended"] == "rounds done"
    assert result["model"] is None
    assert 0.2 < result["own"] < 0.8
    journal = tmp_path / result["journal"]
    assert len(told(journal, Verified)) == len(told(journal, Learned)) == 5
    assert len(told(journal, Evaluated)) == 2
    assert [event.why for event in told(journal, Finished)] == ["rounds done"]


def test_without_json_the_result_is_words(tmp_path: Path) -> None:
    done = waggle(tmp_path, "up", *LONE, "--rounds", "2", "--name", "ant")
    assert done.returncode == 0
    assert done.stdout.startswith("ant: rounds done after 2 rounds\nown reward 0.")
    assert "held-out reward" in done.stdout


def test_a_run_that_keeps_no_checkpoints_is_not_overwritten(tmp_path: Path) -> None:
    command = ("up", *LONE, "--rounds", "1", "--checkpoint.kind", "none")
    assert waggle(tmp_path, *command).returncode == 0
    content = (tmp_path / "run" / "journal.jsonl").read_bytes()
    again = waggle(tmp_path, *command)
    assert (again.returncode, again.stdout) == (2, "")
    assert again.stderr == (
        "waggle: run holds a run that does not go on, because it keeps no checkpoints; "
        "name another folder with --dir\n"
    )
    assert (tmp_path / "run" / "journal.jsonl").read_bytes() == content


def test_a_run_that_could_not_start_leaves_its_folder_to_the_next(tmp_path: Path) -> None:
    mine = tmp_path / "run" / "node.toml"
    mine.parent.mkdir()
    mine.write_text("rounds = 1\n")
    wrong = waggle(tmp_path, "up", str(mine), *LONE, "--tasks", "arithmtic")
    assert wrong.returncode == 5
    assert mine.exists()
    assert [path.name for path in mine.parent.iterdir()] == ["node.toml"]
    assert waggle(tmp_path, "up", *LONE, "--rounds", "1").returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_node_well(number: signal.Signals, tmp_path: Path) -> None:
    journal = tmp_path / "run" / "journal.jsonl"
    with started(tmp_path, "up", *LONE, *ENDLESS, "--json") as node:
        wait_until(lambda: len(told(journal, Learned)) > 3, "some rounds")
        node.send_signal(number)
        assert node.wait(STOP_S) == 0
        assert not dwellers(tmp_path)
    assert told(journal, Finished) == [Finished("stopped")]
    assert json.loads((tmp_path / "out.txt").read_text())["ended"] == "stopped"
    assert "Traceback" not in (tmp_path / "err.txt").read_text()


def test_a_killed_node_leaves_a_journal_that_reads(tmp_path: Path) -> None:
    journal = tmp_path / "run" / "journal.jsonl"
    with started(tmp_path, "up", *LONE, *ENDLESS) as node:
        wait_until(lambda: len(told(journal, Learned)) > 3, "some rounds")
        node.kill()
        assert node.wait(STOP_S) == -signal.SIGKILL
    kept = entries(journal)
    assert isinstance(kept[0].event, Started)
    assert len(told(journal, Learned)) > 3
    assert not told(journal, Finished)


def test_two_nodes_take_each_others_groups(tmp_path: Path) -> None:
    meeting = free_loopback_endpoint()
    sharing = (*SCRIPTED, *ENDLESS, "--policy.success", "0.5", "--swarm.name", f"test-{tmp_path.name[:40]}")
    folders = [tmp_path / "ant", tmp_path / "bee"]
    endpoints = [("--swarm.listen", meeting), ("--swarm.connect", meeting)]
    for folder in folders:
        folder.mkdir()
    ant, bee = (
        started(folder, "up", *sharing, *endpoint, "--name", folder.name, "--dir", "run", "--json")
        for folder, endpoint in zip(folders, endpoints, strict=True)
    )
    journals = [folder / "run" / "journal.jsonl" for folder in folders]
    with ant as one, bee as other:
        wait_until(lambda: all(any(s.foreign for s in told(j, Sampled)) for j in journals), "foreign groups")
        for node in (one, other):
            node.send_signal(signal.SIGTERM)
        assert [node.wait(STOP_S) for node in (one, other)] == [0, 0]
    for folder, peer in zip(folders, ("bee", "ant"), strict=True):
        result = json.loads((folder / "out.txt").read_text())
        assert {name_of(Author(author)) for author in result["taken"]} == {peer}
        sampled = told(folder / "run" / "journal.jsonl", Sampled)
        assert max(event.foreign for event in sampled) <= 4
        assert all(event.own == 4 for event in sampled)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("after", [0, 3], ids=["at-once", "after-3-rounds"])
def test_a_signal_saves_the_model(number: signal.Signals, after: int, tmp_path: Path) -> None:
    journal = tmp_path / "run" / "journal.jsonl"
    tiny = ("--policy.max_tokens", "16", "--swarm.kind", "none", "--dir", "run", *ENDLESS)
    with started(tmp_path, "up", *tiny, "--json") as node:
        wait_until(lambda: journal.exists() and bool(told(journal, Started)), "it began")
        wait_until(lambda: len(told(journal, Learned)) >= after, "some rounds")
        node.send_signal(number)
        assert node.wait(STOP_S) == 0
        wait_until(lambda: not dwellers(tmp_path), "no process left", STOP_S)
    assert told(journal, Finished) == [Finished("stopped")]
    assert told(journal, Saved) == [Saved("run/model")]
    assert json.loads((tmp_path / "out.txt").read_text())["model"] == "run/model"
    loads(tmp_path / "run" / "model")


@pytest.mark.slow
def test_a_missing_model_is_one_line_as_a_process_too(tmp_path: Path) -> None:
    done = waggle(tmp_path, "up", "--policy.model", "./gone", "--swarm.kind", "none")
    assert (done.returncode, done.stdout) == (3, "")
    assert error_line(done.stderr).startswith("model folder ./gone does not exist")
    assert done.stderr.count("\n") == 1
