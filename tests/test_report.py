"""`waggle report`: one file that says it all, needs nothing else and obeys no text."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from cli_run import LONE, error_line, waggle
from test_view_terminal import HOSTILE, STATES
from test_watch import write_run
from view_run import entries
from waggledance.cli.main import main
from waggledance.view.report import Facts, report
from waggledance.view.tally import wilson

FACTS = Facts("today", "Linux", {"python": "3.11"}, {"swarm: n0": 'name = "n0"'})
PNG = b"\x89PNG\r\n\x1a\n"
QUESTIONS = (
    "Did it learn, and does it hold?",
    "What was trained?",
    "Which kinds of question does it get right?",
    "How did each node do?",
    "Who gave, and was it of use?",
    "What was refused, and why?",
    "What did it cost?",
    "What was said at the end?",
    "With which settings?",
)


class Reading(HTMLParser):
    """Elements, what they point at, and the text between them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.addresses: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        assert not [name for name, _ in attrs if name.startswith("on")]
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "action")]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_it_answers_its_questions_and_points_at_nothing_else() -> None:
    read = Reading(report("demo", STATES["done"], 120.0, FACTS, [("curves", PNG)]))
    assert all(question in read.text for question in QUESTIONS)
    assert "the same models, each alone, on" in read.text
    assert [address[:22] for address in read.addresses] == ["data:image/png;base64,"]
    assert not read.tags & {"script", "link", "iframe", "form"}
    assert re.search(r"\d+\.\d% \(\d+\.\d% to \d+\.\d%\)", read.text)


@pytest.mark.parametrize("state", STATES)
def test_every_state_has_a_report_that_obeys_no_text(state: str) -> None:
    markup = Facts("today", "<b>Linux", {"<script>": "1"}, {HOSTILE: "</pre><script>alert(1)</script>"})
    html = report("<img src=x>", STATES[state], 9.0, markup, [])
    read = Reading(html)
    assert not read.tags & {"script", "img"}
    assert html.replace("\n", "").isprintable()


@pytest.mark.parametrize(("share", "count", "low", "high"), [(0.5, 100, 0.404, 0.596), (0.0, 10, 0.0, 0.278)])
def test_the_interval_is_wilsons(share: float, count: int, low: float, high: float) -> None:
    assert wilson(share, count) == pytest.approx((low, high), abs=0.001)


def test_a_runs_report_is_written_into_its_folder_without_its_secrets(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "demo" / "swarm", list(entries(12, 12, 2, together=True)))
    settings = tmp_path / "demo" / "swarm" / "n0" / "settings.toml"
    settings.write_text('name = "n0"\n[swarm]\nticket = "waggleSECRET"\n[page]\ntoken = "SECRET"\n')
    assert main(["report", str(tmp_path / "demo"), "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    assert told == {
        "report": str(tmp_path / "demo" / "report.html"),
        "pictures": [str(tmp_path / "demo" / "report-curves.png")],
    }
    html = Path(told["report"]).read_text()
    assert "SECRET" not in html
    assert "ticket = (left out)" in html
    assert Path(told["pictures"][0]).read_bytes().startswith(PNG)


REFUSED = [
    ("report", 3, "no run below runs/"),
    ("report gone", 3, "no journal in gone"),
    ("report empty", 3, "the journals in empty are empty: the run has not started yet"),
    ("report full --out nowhere/x.html", 7, "cannot be written: No such file or directory"),
]


@pytest.mark.parametrize(("line", "code", "message"), REFUSED, ids=[line for line, _, _ in REFUSED])
def test_what_cannot_be_reported_is_one_line(
    line: str,
    code: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "journal.jsonl").touch()
    write_run(tmp_path / "full", list(entries(2, 2, 1, together=True)))
    monkeypatch.chdir(tmp_path)
    assert main(line.split()) == code
    out, err = capfd.readouterr()
    assert out == ""
    assert message in error_line(err)


@pytest.mark.slow
def test_a_real_nodes_report(tmp_path: Path) -> None:
    assert waggle(tmp_path, "up", *LONE, "--rounds", "3").returncode == 0
    done = waggle(tmp_path, "report", "run")
    assert done.returncode == 0, done.stderr
    html = (tmp_path / "run" / "report.html").read_text()
    assert "3 of 3 rounds" in html
    assert "kind = &quot;scripted&quot;" in html
