"""Eval and export, over a run that trained the tiny model; the hub is a stand-in on this machine."""

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cli_run import loads
from killing import run_to
from waggledance.cli.assemble import open_place
from waggledance.cli.main import main
from waggledance.cli.training import JOURNAL, MODEL, SETTINGS, train
from waggledance.config import check_config, write_config
from waggledance.journal import Journal
from waggledance.lasting import Checkpoints, experience

ROUNDS = 3


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three rounds; twelve completions each."""
    folder = tmp_path_factory.mktemp("runs") / "ant"
    folder.mkdir()
    config = check_config(
        {
            "name": "ant",
            "rounds": ROUNDS,
            "tasks": ("easy:gcd",),
            "threads": 1,
            "home": str(tmp_path_factory.mktemp("home")),
            "swarm": {"kind": "none"},
            "policy": {"max_tokens": 8, "completions": 4},
            "mix": {"own": 3, "foreign": 0},
            "evaluate": {"tasks": 4},
        }
    )
    (folder / SETTINGS).write_text(write_config(config))
    place = open_place(config, folder)
    journal = Journal(place.author, lambda: 0.0, folder / JOURNAL)
    train(config, place, journal, lambda: False)
    journal.close()
    return folder


def test_a_run_is_evaluated_before_and_after(finished: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", str(finished), "--count", "4", "--completions", "2", "--json"]) == 0
    result = json.loads(capfd.readouterr().out)
    before, after = result["models"]
    assert before["model"].endswith("ant: before (tiny)")
    assert after["model"].endswith(f"ant: round {ROUNDS}")
    assert list(before["passed"]) == list(after["passed"]) == ["pass@1", "pass@2"]
    assert before["change"] is None
    assert after["change"]["low"] <= after["change"]["value"] <= after["change"]["high"]
    assert list(after["by_source"]) == result["sources"] == ["easy:gcd"]
    for side in (before, after):
        for estimate in side["passed"].values():
            assert 0 <= estimate["low"] <= estimate["value"] <= estimate["high"] <= 1


def test_the_table_shows_every_model(capfd: pytest.CaptureFixture[str]) -> None:
    words = [
        "eval",
        "tiny",
        "tiny",
        "--tasks",
        "easy:gcd",
        "--count",
        "2",
        "--completions",
        "1",
        "--max-tokens",
        "4",
    ]
    assert main(words) == 0
    out = capfd.readouterr().out
    assert out.count("easy:gcd: tiny") == 2
    assert "pass@1" in out
    assert "+0.000 (+0.000 … +0.000)" in out


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("eval tiny --count 0", 2, "--count 0: take 1 to"),
        ("eval tiny --completions 65", 2, "--completions 65: take 1 to 64"),
        ("eval tiny --k 1,9", 2, "--k 1,9: 9 is not 1 to 8, the completions a task"),
        ("eval tiny --k x", 2, "x is not 1 to 8"),
        ("eval ./gone --tasks easy:gcd", 3, "model folder ./gone does not exist"),
        ("eval tiny --tasks esay", 5, "esay"),
        ("export nowhere", 3, "nowhere is no run's folder: it has no journal.jsonl"),
        ("export RUN --dataset x.csv", 2, "--dataset x.csv: end its name in .jsonl or .parquet"),
        ("export RUN --push a/b", 2, "--push: no token; put one that may write into HF_TOKEN"),
        ("export RUN --to RUN/journal.jsonl", 7, "it is a file; name a folder"),
    ],
)
def test_what_is_wrong_is_one_line(
    line: str,
    code: int,
    said: str,
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    assert main(line.replace("RUN", str(finished)).split()) == code
    out, err = capfd.readouterr()
    assert out == ""
    assert said in err.splitlines()[-1]
    assert not list(tmp_path.iterdir())


def test_a_run_is_exported_with_a_card(
    finished: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(finished), "--to", str(tmp_path / "model"), "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == {"model": str(tmp_path / "model"), "round": ROUNDS}
    loads(tmp_path / "model")
    saved = finished / MODEL / "model.safetensors"
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == saved.read_bytes()
    card = (tmp_path / "model" / "README.md").read_text()
    assert card.startswith("---\nlicense: apache-2.0\n")
    for words in (
        "`tiny`, post-trained",
        f"{ROUNDS} rounds of grpo, 3 own and 0 foreign",
        "| tasks | easy:gcd |",
        "| held-out reward before | 0.",
        "| held-out reward after | 0.",
        "none: it learned alone",
    ):
        assert words in card


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_the_experience_is_a_dataset(
    kind: str, finished: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    file = tmp_path / "deep" / f"experience.{kind}"
    assert main(["export", str(finished), "--dataset", str(file), "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == {"dataset": str(file), "rows": ROUNDS * 3 * 4}
    rows = rows_of(file)
    assert [row["round"] for row in rows] == [number for number in (1, 2, 3) for _ in range(12)]
    assert {row["author"] for row in rows} == {"ant"}
    assert {row["source"] for row in rows} == {"easy:gcd"}
    assert all(row["question"] and row["tokens"] > 0 and row["mean_logprob"] <= 0 for row in rows)


def rows_of(file: Path) -> list[dict[str, Any]]:
    if file.suffix == ".jsonl":
        return [json.loads(line) for line in file.read_text().splitlines()]
    parquet: Any = pytest.importorskip("pyarrow.parquet")
    return parquet.read_table(file).to_pylist()


def test_experience_outlives_the_checkpoints_it_was_recorded_in_and_is_bounded(tmp_path: Path) -> None:
    for limit, kept in ((1 << 20, list(range(1, 31))), (3000, None)):
        folder = tmp_path / str(limit)
        store = Checkpoints(folder, experience_bytes=limit)
        run_to(store, 30)
        store.close()
        rounds = [each.round for each in experience(folder)]
        assert rounds == kept if kept else rounds == list(range(rounds[0], 31))
        assert sum(file.stat().st_size for file in (folder / "experience").iterdir()) <= limit
    assert rounds[0] > 1


@pytest.fixture
def hub() -> Iterator[tuple[str, dict[str, bytes], list[str]]]:
    """A hub as small as can be: it makes a repository and takes one commit into it."""
    files: dict[str, bytes] = {}
    tokens: list[str] = []

    class Stand(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            tokens.append(self.headers.get("Authorization", ""))
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.path.endswith("/repos/create"):
                self.answer({"url": f"http://{self.headers['Host']}/bee/honey", "name": "bee/honey"})
            elif "/preupload/" in self.path:
                asked = json.loads(content)["files"]
                answers = [
                    {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False} for file in asked
                ]
                self.answer({"files": answers})
            elif "/commit/" in self.path:
                for line in content.splitlines():
                    entry = json.loads(line)
                    if entry["key"] == "file":
                        files[entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
                self.answer(
                    {
                        "commitUrl": f"http://{self.headers['Host']}/bee/honey/commit/0",
                        "commitOid": "0" * 40,
                        "success": True,
                    }
                )
            else:
                self.answer({})

        def do_GET(self) -> None:
            self.answer({"id": "bee/honey", "sha": "0" * 40, "siblings": []})

        def answer(self, what: object) -> None:
            body = json.dumps(what).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its caller's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Stand)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", files, tokens
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_folder_is_pushed_to_a_hub_with_the_token(
    hub: tuple[str, dict[str, bytes], list[str]],
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    address, files, tokens = hub
    monkeypatch.setenv("HF_ENDPOINT", address)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    model = tmp_path / "model"
    assert main(["export", str(finished), "--to", str(model), "--push", "bee/honey", "--json"]) == 0
    out, err = capfd.readouterr()
    assert json.loads(out)["pushed"] == f"{address}/bee/honey"
    assert "hf_secret" not in out + err
    assert files == {file.name: file.read_bytes() for file in model.iterdir()}
    assert set(tokens) == {"Bearer hf_secret"}


def test_a_hub_that_is_not_there_is_one_line_and_the_folder_stands(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert main(["export", str(finished), "--to", str(tmp_path / "m"), "--push", "bee/honey"]) == 3
    err = capfd.readouterr().err
    assert "http://127.0.0.1:9 does not take bee/honey" in err.splitlines()[-1]
    assert "hf_secret" not in err
    loads(tmp_path / "m")
