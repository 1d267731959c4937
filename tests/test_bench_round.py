"""`waggle bench round` on the tiny model: what it tells holds together."""

import json
from pathlib import Path

import pytest

from cli_run import waggle
from waggledance.bench.round import COMPLETIONS, QUESTIONS, TOKENS, reference_tasks


@pytest.mark.slow
def test_a_round_of_the_tiny_model_is_told_beside_its_floor(tmp_path: Path) -> None:
    done = waggle(tmp_path, "bench", "round", "--model", "tiny", "--threads", "1", "--repeats", "1", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["seconds"] == pytest.approx(told["generate_s"] + told["learn_s"])
    assert told["times_floor"] == pytest.approx(told["seconds"] / told["floor_s"])
    assert told["times_floor"] > 1
    assert 0 < told["peak_gb"] < 4
    # 0.87 M weights, 0.07 M of them looked up on the way in and multiplied by on the way out.
    written, flops = QUESTIONS * COMPLETIONS * TOKENS, told["floor_s"] * told["gflops"] * 1e9
    assert flops == pytest.approx(8 * 0.87e6 * (written + told["prompt_tokens"]), rel=0.15)
    assert "round 1: generate" in done.stderr


def test_its_questions_are_the_paper_s_and_always_the_same() -> None:
    tasks = reference_tasks()
    assert len({task.source for task in tasks}) == QUESTIONS
    assert tasks == reference_tasks()


@pytest.mark.parametrize("wrong", [("--threads", "0"), ("--repeats", "0"), ("--memory-mb", "0")])
def test_a_number_out_of_its_limits_is_refused(tmp_path: Path, wrong: tuple[str, str]) -> None:
    done = waggle(tmp_path, "bench", "round", *wrong)
    assert done.returncode == 2
    assert wrong[0] in done.stderr
