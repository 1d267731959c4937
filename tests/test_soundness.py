"""What a run does with a model that goes wrong or is slow: it says so, and keeps the last sound weights."""

# pyright: standard

from contextlib import closing
from pathlib import Path

import msgspec
import pytest
import torch

from test_model import toy, toy_folder
from waggledance.cli.assemble import open_place
from waggledance.cli.training import train
from waggledance.config import check_config
from waggledance.errors import DivergedError
from waggledance.events import Failed, Learned, Saved, Started
from waggledance.forward import KEPT_AS, Proof
from waggledance.journal import Journal, JournalReader
from waggledance.learner.optimiser import Optimiser
from waggledance.model import Model, load_model
from waggledance.rollout import Author


def run(tmp_path: Path, **learner: object) -> list[object]:
    """A run of a toy on words, and what it told."""
    questions = tmp_path / "questions.jsonl"
    lines = [{"question": f"word {k}", "answer": "a", "rule": "text"} for k in range(40)]
    questions.write_bytes(b"\n".join(map(msgspec.json.encode, lines)))
    config = check_config(
        {
            "rounds": 12,
            "tasks": [f"jsonl:{questions}"],
            "policy": {"model": str(toy_folder(tmp_path / "toy")), "max_tokens": 4, "system_prompt": ""},
            "learner": {"kind": "ppo", **learner},
            "swarm": {"kind": "none"},
            "evaluate": {"tasks": 0},
        }
    )
    folder = tmp_path / "run"
    folder.mkdir()
    ended: list[object] = []
    with closing(Journal(Author("node"), lambda: 0.0, folder / "journal.jsonl")) as journal:
        try:
            train(config, open_place(config, folder), journal, lambda: False)
        except DivergedError as error:
            ended.append(error)
    with closing(JournalReader(folder / "journal.jsonl")) as reader:
        return [*(entry.event for entry in reader.entries()), *ended]


def test_a_run_whose_gradients_break_is_saved_as_it_was_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the third step on every gradient is broken; the weights that are saved are those of the second."""
    steps = 0
    step = Optimiser.step

    def broken(self: Optimiser) -> float:
        nonlocal steps
        steps += 1
        if steps > 2:
            self._weights[0].grad = torch.full_like(self._weights[0], float("inf"))
        return step(self)

    monkeypatch.setattr(Optimiser, "step", broken)
    told = run(tmp_path, max_skipped=3)
    assert [event.skipped for event in told if isinstance(event, Learned)] == [0, 0, 1, 1, 1]
    assert isinstance(told[-1], DivergedError)
    assert "max_skipped allows 3" in str(told[-1])
    assert any(isinstance(event, Saved) for event in told)
    assert any(isinstance(event, Failed) and event.exit_code == 4 for event in told)
    saved = load_model(str(tmp_path / "run" / "model"))
    assert all(torch.isfinite(weight).all() for weight in saved.network.parameters())


def test_a_model_that_is_computed_the_slow_way_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waggledance.forward._prove", lambda _bare: Proof("tokens meet outside attention"))
    [started] = [event for event in run(tmp_path) if isinstance(event, Started)]
    assert "the slow way: tokens meet outside attention" in started.notice


def test_a_model_that_shares_its_prompts_is_nothing_to_speak_of(tmp_path: Path) -> None:
    model: Model = toy(tmp_path)
    assert model.objection == ""
    assert isinstance(getattr(model.network, KEPT_AS), Proof)
