"""Runs told to trackers: every round, by the names of /metrics, read back with the tracker's own reader."""

import importlib
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cli_run import LONE, error_line, waggle
from test_watch import write_run
from view_run import entries
from waggledance.cli.tracking import Tracking, tracked
from waggledance.errors import MissingError
from waggledance.view.metrics import GAUGES
from waggledance.view.track import KINDS, open_tracker


def told_to(kind: str, folder: Path) -> None:
    """A run of six rounds, told in two goes as a node's own journal grows."""
    write_run(folder, list(entries(6, 6, 1, together=True)))
    tracker = open_tracker(kind, folder)
    tracking = Tracking(folder / "n0" / "journal.jsonl", [tracker])
    tracking.read()
    tracking.read()
    tracking.close()
    tracker.close()


def read_back(folder: Path) -> dict[str, list[tuple[int, float]]]:
    loader: Any = importlib.import_module("tensorboard.backend.event_processing.event_file_loader")
    found: dict[str, list[tuple[int, float]]] = {}
    for path in (folder / "tensorboard").iterdir():
        for event in loader.LegacyEventFileLoader(str(path)).Load():
            for value in event.summary.value:
                found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_reads_every_round(tmp_path: Path) -> None:
    told_to("tensorboard", tmp_path)
    found = read_back(tmp_path)
    assert set(GAUGES) <= set(found)
    assert sorted({step for step, _ in found["round"]}) == [0, 1, 2, 3, 4, 5, 6]
    assert dict(found["tokens_generated"])[6] == 6 * 64 * 10


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_an_earlier_process_told_is_not_told_again(tmp_path: Path) -> None:
    write_run(tmp_path, list(entries(3, 6, 1, together=True)))
    journal = tmp_path / "n0" / "journal.jsonl"
    with tracked(["tensorboard"], journal):
        later = [entry for entry in entries(6, 6, 1, together=True) if entry.round > 3]
        with journal.open("ab") as file:
            file.write(b"".join(msgspec.json.encode(entry) + b"\n" for entry in later))
    assert sorted({step for step, _ in read_back(tmp_path / "n0")["round"]}) == [4, 5, 6]


@pytest.mark.parametrize("kind", KINDS)
def test_a_tracker_that_is_not_installed_is_named(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, kind, None)
    with pytest.raises(MissingError, match=rf"track = '{kind}': {kind} is not installed; pip install"):
        open_tracker(kind, tmp_path)


@pytest.mark.slow
def test_a_node_is_tracked_to_its_end(tmp_path: Path) -> None:
    done = waggle(tmp_path, "up", *LONE, "--rounds", "5", "--track", "tensorboard")
    assert done.returncode == 0, done.stderr
    assert max(step for step, _ in read_back(tmp_path / "run")["own_reward"]) == 5
    refused = waggle(tmp_path, "up", *LONE, "--track", "tensorbord", "--dir", "other")
    assert "take tensorboard" in error_line(refused.stderr)
