"""Layers computed twice: the same numbers and gradients, for less kept memory."""

# pyright: standard

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from test_learner import RAGGED, SETTINGS, batch_of_everything, equal, gradients, scored, weights_of
from test_model import GROUPED, toy_folder, toy_tokenizer
from test_parts import GROUPS, PPO_SETTINGS
from test_prefix import ALL, SIXTEEN, toy_of, unproven
from waggledance.adapter import adapt
from waggledance.errors import ModelError
from waggledance.forward import proof_of, recompute_layers
from waggledance.learner.batch import Batch
from waggledance.learner.grpo import GRPO
from waggledance.learner.logprobs import token_logprobs, token_logprobs_and_states
from waggledance.learner.parts import Room
from waggledance.learner.ppo import PPO
from waggledance.model import Model, load_model


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


Found = tuple[Tensor, Tensor, list[Tensor]]


def learned_from(model: Model, batch: Batch) -> Found:
    """Log-probabilities, states, and the gradients of both."""
    logprobs, states = token_logprobs_and_states(model.network, batch, 0.8)
    mask = batch.mask_RT
    pull = torch.linspace(-1, 2, logprobs.numel()).reshape(logprobs.shape)
    ((logprobs * mask * pull).sum() + (states * mask[..., None]).square().mean()).backward()
    return (logprobs * mask).detach(), (states * mask[..., None]).detach(), gradients(model)


def assert_same(found: Found, expected: Found) -> None:
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])
    assert len(found[2]) == len(expected[2]) > 0
    for mine, theirs in zip(found[2], expected[2], strict=True):
        assert (mine - theirs).norm() <= 1e-6 * theirs.norm()


def kept_by(step: Callable[[], object]) -> int:
    """Bytes that stand from a pass to its backward pass."""
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        step()
    return sum(kept.values())


@pytest.mark.parametrize("way", ["stream", "plain"])
@pytest.mark.parametrize("kind", ALL)
def test_numbers_and_gradients_are_those_without_it(tmp_path: Path, kind: str, way: str) -> None:
    model = toy_of(tmp_path, kind)
    if way == "plain":
        unproven(model)
    batch = batch_of_everything(model, SIXTEEN)
    expected = learned_from(model, batch)
    model.network.zero_grad()
    recompute_layers(model.network)
    assert_same(learned_from(model, batch), expected)


def test_an_adapters_gradients_are_those_without_it(tmp_path: Path) -> None:
    model = toy_of(tmp_path, "llama")
    adapt(model, 4, 2.0, 1)
    for name, weight in model.network.named_parameters():
        if ".lora_B." in name:
            torch.nn.init.normal_(weight, std=0.3)
    batch = batch_of_everything(model, RAGGED)
    expected = learned_from(model, batch)
    model.network.zero_grad()
    recompute_layers(model.network)
    assert_same(learned_from(model, batch), expected)


def test_bfloat16_is_computed_twice_in_bfloat16(tmp_path: Path) -> None:
    model = load_model(str(toy_folder(tmp_path)), system_prompt="", precision="bfloat16")
    batch = batch_of_everything(model, RAGGED)
    expected = learned_from(model, batch)
    model.network.zero_grad()
    recompute_layers(model.network)
    assert_same(learned_from(model, batch), expected)


@pytest.mark.parametrize("kind", ["grpo", "ppo"])
def test_a_learner_takes_the_same_steps(tmp_path: Path, kind: str) -> None:
    steps = []
    for recompute in (False, True):
        model = toy_of(tmp_path / str(recompute), "llama")
        learner = (
            GRPO(model, replace(SETTINGS, kl_weight=0.1, epochs=2, recompute=recompute))
            if kind == "grpo"
            else PPO(model, replace(PPO_SETTINGS, recompute=recompute))
        )
        steps.append((learner.learn(GROUPS), weights_of(model)))
    (lesson, weights), (again, others) = steps
    assert again == lesson
    assert equal(weights, others)


@pytest.mark.parametrize("kind", ALL)
def test_less_is_kept_and_the_estimate_knows(tmp_path: Path, kind: str) -> None:
    model = toy_of(tmp_path, kind)
    batch = batch_of_everything(model, SIXTEEN)
    before, room = proof_of(model.network).kept_bytes, Room(model.network, 1 << 20).tokens
    kept = kept_by(lambda: token_logprobs(model.network, batch, 1.0))
    recompute_layers(model.network)
    less = kept_by(lambda: token_logprobs(model.network, batch, 1.0))
    assert less < 0.4 * kept
    assert proof_of(model.network).kept_bytes < 0.8 * before
    assert Room(model.network, 1 << 20).tokens > 1.25 * room
    proof = proof_of(model.network)
    recompute_layers(model.network)  # once is enough
    assert proof_of(model.network) is proof


def test_what_is_kept_hardly_grows_with_layers(tmp_path: Path) -> None:
    """Of the whole pass nearly all is in its layers: of twelve, about one stays."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**{**GROUPED, "num_hidden_layers": 12})).save_pretrained(tmp_path)
    toy_tokenizer().save_pretrained(tmp_path)
    model = load_model(str(tmp_path), system_prompt="")
    before = proof_of(model.network).kept_bytes
    recompute_layers(model.network)
    assert proof_of(model.network).kept_bytes < before / 4


def test_a_copy_computes_its_own_layers(tmp_path: Path) -> None:
    model = toy_of(tmp_path, "llama")
    recompute_layers(model.network)
    twin = replace(model, network=copy.deepcopy(model.network))
    batch = batch_of_everything(model, RAGGED)
    with torch.no_grad():
        for weight in model.network.parameters():
            weight.zero_()
    expected = learned_from(toy_of(tmp_path / "again", "llama"), batch)
    assert_same(learned_from(twin, batch), expected)


def test_a_network_without_such_layers_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = toy_of(tmp_path, "llama")
    monkeypatch.setattr("waggledance.recompute.GradientCheckpointingLayer", torch.nn.Bilinear)
    with pytest.raises(ModelError, match=r"learner\.recompute.*learner\.memory_mb"):
        GRPO(model, replace(SETTINGS, recompute=True))


def test_long_rollouts_fit_where_they_did_not(tmp_path: Path) -> None:
    """In one part what took several: fewer prompts are computed twice."""
    model = toy_of(tmp_path, "llama")
    groups = [scored("why?", [0, 1], ["a" * 20, "b" * 20]) for _ in range(4)]
    batch = batch_of_everything(model, groups)
    memory = 60 * proof_of(model.network).kept_bytes
    before = len(Room(model.network, memory).parts(batch))
    recompute_layers(model.network)
    assert len(Room(model.network, memory).parts(batch)) < before
