"""The reader: what it says of a text is what the model's distribution says, the plain way."""

# pyright: standard

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import waggledance.policy.reader as reader_module
from test_model import KINDS, task, toy
from test_policy import TASKS, recomputed
from waggledance.model import Model
from waggledance.policy.hf import HFPolicy
from waggledance.policy.reader import HFReader
from waggledance.rollout import Author, Group, Rollout
from waggledance.task import Digest, SourceName


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return toy(tmp_path_factory.mktemp("llama"))


def a_group(*rollouts: Rollout) -> Group:
    return Group(Author("ant"), 1, SourceName("toy"), Digest("0"), 0, rollouts)


def written(text: str, *, finished: bool = True) -> Rollout:
    return Rollout(text, finished, tokens=1, mean_logprob=-1.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("slice_tokens", [8, 512])
def test_foreign_text_reads_as_the_model_would_write_it(
    kind: str, slice_tokens: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "SLICE_TOKENS", slice_tokens)
    model = toy(tmp_path, kind)
    texts = ["four", "the answer is four", "", "ü"]
    groups = [a_group(*(written(text, finished=len(text) % 2 == 0) for text in texts)) for _ in TASKS]
    read = HFReader(model, 0.7, 64).logprobs(TASKS, groups)
    for question, group, lines in zip(TASKS, groups, read, strict=True):
        for rollout, line in zip(group.rollouts, lines, strict=True):
            ids = tuple(model.text_ids(rollout.text, finished=rollout.finished))
            expected = recomputed(model, question, ids, 0.7) if ids else torch.zeros(0)
            torch.testing.assert_close(torch.tensor(line), expected, rtol=1e-4, atol=1e-4)


def test_own_text_reads_as_it_was_drawn(llama: Model) -> None:
    drawn = HFPolicy(llama, 0.8, 12).generate(TASKS, 4, 1)
    read = HFReader(llama, 0.8, 12).logprobs(TASKS, [a_group(*rollouts) for rollouts in drawn])
    for rollouts, lines in zip(drawn, read, strict=True):
        for rollout, line in zip(rollouts, lines, strict=True):
            assert len(line) == rollout.tokens
            assert sum(line) / len(line) == pytest.approx(rollout.mean_logprob, abs=1e-4)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.text(st.characters(codec="utf-8"), max_size=40), min_size=1, max_size=4),
    st.integers(1, 40),
    st.integers(0, 50),
)
def test_any_text_can_be_read(llama: Model, texts: list[str], max_tokens: int, letters: int) -> None:
    group = a_group(*map(written, texts))
    [lines] = HFReader(llama, 1.0, max_tokens).logprobs([task("x" * letters)], [group])
    assert len(lines) == len(texts)
    assert all(len(line) <= max_tokens and all(value <= 1e-5 for value in line) for line in lines)


def test_a_prompt_that_fills_the_window_leaves_nothing_to_read(llama: Model) -> None:
    group = a_group(written("four"))
    assert HFReader(llama, 1.0, 8).logprobs([task("x" * llama.window)], [group]) == [((),)]


def test_greedy_policies_read_at_one(llama: Model) -> None:
    groups = [a_group(written("four"))]
    assert HFReader(llama, 0.0, 8).logprobs([task("?")], groups) == HFReader(llama, 1.0, 8).logprobs(
        [task("?")], groups
    )
