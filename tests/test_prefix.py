"""Prompts computed once: the numbers of plain padded passes, for every architecture, group size and order."""

# pyright: standard

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import GemmaConfig, GemmaForCausalLM

from test_learner import RAGGED, SETTINGS, batch_of_everything, gradients, plain_logprobs, rows_of, scored
from test_model import GROUPED, KINDS, task, toy, toy_tokenizer
from test_policy import TASKS, often_ending, recomputed
from waggledance import forward
from waggledance.forward import KEPT_AS, Proof, bare_network, proof_of
from waggledance.learner.grpo import GRPO
from waggledance.learner.logprobs import token_logprobs, token_logprobs_and_states
from waggledance.model import Model, load_model
from waggledance.policy.hf import HFPolicy

ALL = [*KINDS, "gemma"]


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def toy_of(folder: Path, kind: str) -> Model:
    if kind != "gemma":
        return toy(folder, kind)
    torch.manual_seed(0)
    GemmaForCausalLM(GemmaConfig(**GROUPED, head_dim=8)).save_pretrained(folder)
    toy_tokenizer().save_pretrained(folder)
    return load_model(str(folder), system_prompt="")


def unproven(model: Model) -> Model:
    setattr(bare_network(model.network), KEPT_AS, Proof("a test wants it so"))
    return model


SIXTEEN = [
    scored("x" * 70, [k % 2 for k in range(16)], ["ab" * k for k in range(16)]),
    scored("?", [1], ["alone among many"]),
    scored("no", [0, 1], ["", "it ends early"]),
]
"""Groups of 1, 2 and 16, prompts of 2 to 71 tokens, completions of 1 to 31."""


@pytest.mark.parametrize("kind", ALL)
def test_every_architecture_proves_itself(tmp_path: Path, kind: str) -> None:
    proof = proof_of(toy_of(tmp_path, kind).network)
    assert proof.objection == ""
    assert proof.kept_bytes > 1000
    assert proof.cached_bytes >= 2 * 2 * 2 * 8 * 4  # two layers' keys and values of two heads, eight wide


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("slice_bytes", [1 << 30, 4000])
def test_log_probabilities_states_and_gradients_are_those_of_a_plain_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, slice_bytes: int
) -> None:
    monkeypatch.setattr(forward, "SLICE_BYTES", slice_bytes)
    model = toy_of(tmp_path, kind)
    batch = batch_of_everything(model, SIXTEEN)
    plain = plain_logprobs(model, rows_of(model, SIXTEEN), 0.8)
    ours = token_logprobs(model.network, batch, 0.8)
    assert (ours - plain).abs().max() < 1e-4
    pull = torch.linspace(-1, 2, plain.numel()).reshape(plain.shape)
    (plain * pull).sum().backward()
    expected = [gradient.clone() for gradient in gradients(model)]
    model.network.zero_grad()
    (ours * pull).sum().backward()
    largest = max(gradient.norm() for gradient in expected)
    for mine, theirs in zip(gradients(model), expected, strict=True):
        assert (mine - theirs).norm() <= 1e-3 * theirs.norm() + 1e-6 * largest


@pytest.mark.parametrize("kind", ["llama", "gemma2", "gpt_neox"])
def test_an_unproven_network_gives_the_same_numbers_the_plain_way(tmp_path: Path, kind: str) -> None:
    ours, plain = often_ending(toy_of(tmp_path / "a", kind)), unproven(toy_of(tmp_path / "b", kind))
    plain = replace(plain, end_ids=ours.end_ids)
    batch = batch_of_everything(ours, SIXTEEN)
    with torch.no_grad():
        fast = token_logprobs_and_states(ours.network, batch, 1.0)
        slow = token_logprobs_and_states(plain.network, batch, 1.0)
    for mine, theirs in zip(fast, slow, strict=True):
        mask = batch.mask_RT.view(*batch.mask_RT.shape, *[1] * (mine.dim() - 2))
        assert (mine * mask - theirs * mask).abs().max() < 1e-4
    assert texts(ours, 0.0) == texts(plain, 0.0)


def texts(model: Model, temperature: float) -> list[tuple[int, ...]]:
    drawn = HFPolicy(model, temperature, 12).generate(TASKS, 2, 3)
    return [rollout.token_ids for group in drawn for rollout in group]


def test_a_network_that_mixes_tokens_elsewhere_does_not_prove_itself_and_works(tmp_path: Path) -> None:
    model = toy(tmp_path)

    def mixed(_module: object, _given: object, hidden: Tensor) -> Tensor:
        return hidden + hidden.roll(1, 1)  # every token sees its neighbour, whosever it is

    model.network.model.layers[0].register_forward_hook(mixed)
    assert "change a log-probability by" in proof_of(model.network).objection
    assert len(texts(model, 1.0)) == 2 * len(TASKS)


def test_a_network_that_cannot_take_a_stream_does_not_prove_itself(tmp_path: Path) -> None:
    model = toy(tmp_path)
    model.network.base_model.forward = None  # pyright: ignore
    assert proof_of_broken(model) == "TypeError in its pass over a stream"


def proof_of_broken(model: Model) -> str:
    """The plain pass is the one of another, whole network."""
    whole = {"plain": forward._plain}
    forward._plain = lambda _bare, _prompt, row: torch.zeros(len(row))
    try:
        return proof_of(model.network).objection
    finally:
        forward._plain = whole["plain"]


def test_what_has_no_room_waits_and_is_drawn_all_the_same(tmp_path: Path) -> None:
    model = often_ending(toy(tmp_path))
    whole = HFPolicy(model, 1.0, 16).generate(TASKS, 5, 3)
    for room in (1, 300 * proof_of(model.network).cached_bytes):
        waves = HFPolicy(model, 1.0, 16, cache_bytes=room).generate(TASKS, 5, 3)
        for group, same in zip(waves, whole, strict=True):
            assert [rollout.token_ids for rollout in group] == [rollout.token_ids for rollout in same]


@pytest.mark.parametrize("kind", ["llama", "gemma2", "mistral"])
def test_rows_that_go_on_are_moved_together_unharmed(tmp_path: Path, kind: str) -> None:
    """Most rows end at once, so that the room is halved again and again under those that go on."""
    model = often_ending(toy_of(tmp_path, kind))
    asked = [task(question, index) for index, question in enumerate(["?", "x" * 50, "is it?"])]
    seen = 0
    for question, group in zip(asked, HFPolicy(model, 1.0, 24).generate(asked, 16, 5), strict=True):
        for rollout in group:
            plain = recomputed(model, question, rollout.token_ids).mean().item()
            assert rollout.mean_logprob == pytest.approx(plain, abs=2e-5)
            seen += rollout.tokens > 8
    assert seen > 0


def test_a_reference_is_proven_by_what_it_was_copied_from(tmp_path: Path) -> None:
    model = toy(tmp_path)
    learner = GRPO(model, replace(SETTINGS, kl_weight=0.1))
    assert learner._reference is not None
    assert proof_of(learner._reference._network) is not None
    assert learner.learn(RAGGED).kl == pytest.approx(0, abs=1e-6)
