"""LoRA: what moves and what does not, what the adapter switched off is, and what is saved."""

# pyright: standard

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from test_learner import RAGGED, SETTINGS, batch_of_everything, equal, plain_logprobs, rows_of, weights_of
from test_learning import configured
from test_model import KINDS, toy
from test_ppo import SETTINGS as PPO_SETTINGS
from waggledance.adapter import adapt, adapted_layers, is_adapted, merged_weights, switched_off
from waggledance.checkpoint import save_model
from waggledance.cli.assemble import thinking
from waggledance.errors import MissingError, UsageError
from waggledance.learner.grpo import GRPO
from waggledance.learner.logprobs import token_logprobs
from waggledance.learner.ppo import PPO
from waggledance.learner.reference import Reference
from waggledance.model import Model, load_model
from waggledance.policy.hf import HFPolicy

LEARNERS = {
    "grpo": lambda model, kl_weight: GRPO(model, replace(SETTINGS, kl_weight=kl_weight)),
    "ppo": lambda model, kl_weight: PPO(model, replace(PPO_SETTINGS, kl_weight=kl_weight)),
}
IDS = torch.arange(3, 21).reshape(2, 9)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def adapted(folder: Path, kind: str = "llama", *, seed: int = 1) -> Model:
    model = toy(folder, kind)
    adapt(model, 4, 2.0, seed)
    return model


def shaken(model: Model) -> Model:
    """With an adapter that says something."""
    for name, weight in model.network.named_parameters():
        if ".lora_B." in name:
            torch.nn.init.normal_(weight, std=0.3)
    return model


@torch.no_grad()
def says(model: Model) -> Tensor:
    return model.network(IDS).logits


def frozen(model: Model) -> dict[str, Tensor]:
    named = model.network.named_parameters()
    return {name: weight.clone() for name, weight in named if not weight.requires_grad}


@pytest.mark.parametrize("kind", KINDS)
def test_an_adapter_changes_nothing_until_it_learns_and_nothing_when_it_is_off(
    tmp_path: Path, kind: str
) -> None:
    plain = says(toy(tmp_path / "plain", kind))
    model = adapted(tmp_path / "adapted", kind)
    assert torch.equal(says(model), plain)
    shaken(model)
    assert (says(model) - plain).abs().max() > 1e-2
    with switched_off(model.network):
        assert torch.equal(says(model), plain)
    assert (says(model) - plain).abs().max() > 1e-2


@pytest.mark.parametrize("kind", KINDS)
def test_log_probabilities_and_gradients_are_those_of_a_plain_pass(tmp_path: Path, kind: str) -> None:
    model = shaken(adapted(tmp_path, kind))
    batch = batch_of_everything(model, RAGGED)
    plain = plain_logprobs(model, rows_of(model, RAGGED), 0.7)
    ours = token_logprobs(model.network, batch, 0.7)
    assert (ours * batch.mask_RT - plain).abs().max() < 1e-4
    learning = [weight for weight in model.network.parameters() if weight.requires_grad]
    pull = torch.linspace(-1, 2, plain.numel()).reshape(plain.shape)
    expected = torch.autograd.grad((plain * pull).sum(), learning)
    found = torch.autograd.grad((ours * batch.mask_RT * pull).sum(), learning)
    largest = max(gradient.abs().max() for gradient in expected)
    for mine, theirs in zip(found, expected, strict=True):
        assert (mine - theirs).norm() <= 1e-3 * theirs.norm() + 1e-5 * largest


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_saved_is_a_model_like_any_other(tmp_path: Path, kind: str) -> None:
    model = shaken(adapted(tmp_path / "adapted", kind))
    said, before = says(model), weights_of(model)
    save_model(model, tmp_path / "saved")
    loaded = load_model(str(tmp_path / "saved"))
    assert not is_adapted(loaded.network)
    assert torch.allclose(says(loaded), said, atol=1e-4)
    assert equal(weights_of(model), before)
    assert torch.equal(says(model), said)
    assert merged_weights(model.network).keys() == loaded.network.state_dict().keys()


@pytest.mark.parametrize("name", LEARNERS)
def test_the_adapter_learns_and_the_model_stays(tmp_path: Path, name: str) -> None:
    model = adapted(tmp_path)
    before, plain = frozen(model), says(model)
    rows = rows_of(model, RAGGED[:1])
    with torch.no_grad():
        first = plain_logprobs(model, rows, 1.0).sum(1)
    learner = LEARNERS[name](model, 0.0)
    lessons = [learner.learn(RAGGED[:1]) for _ in range(3)]
    with torch.no_grad():
        right, wrong = plain_logprobs(model, rows, 1.0).sum(1) - first
    assert right > wrong
    assert all(lesson.grad_norm > 0 for lesson in lessons)
    assert all(torch.equal(weight, before[key]) for key, weight in frozen(model).items())
    assert not torch.equal(says(model), plain)
    with switched_off(model.network):
        assert torch.equal(says(model), plain)


@pytest.mark.parametrize("name", LEARNERS)
def test_the_reference_is_the_adapter_switched_off(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model as it was, as reference, gives the same steps."""
    found: list[list[Tensor]] = []
    for apart in (False, True):
        model = adapted(tmp_path / str(apart))
        learner = LEARNERS[name](model, 0.5)
        reference = learner._reference
        assert isinstance(reference, Reference)
        assert reference._network is model.network
        if apart:
            monkeypatch.setattr(reference, "_network", toy(tmp_path / "start").network)
        start = weights_of(model)
        lessons = [learner.learn(RAGGED) for _ in range(3)]
        assert lessons[0].kl == pytest.approx(0, abs=1e-6)
        assert lessons[-1].kl > 0
        found.append([now - then for now, then in zip(weights_of(model), start, strict=True)])
    one, other = (torch.cat([moved.flatten() for moved in moves]) for moves in found)
    assert (one - other).norm() < 1e-2 * one.norm()


def test_an_adapted_policy_answers_as_its_saved_model_does(tmp_path: Path) -> None:
    model = shaken(adapted(tmp_path / "adapted"))
    save_model(model, tmp_path / "saved")
    saved = load_model(str(tmp_path / "saved"), system_prompt="")
    tasks = [one.task for one in RAGGED]
    for ours, theirs in zip(
        *(HFPolicy(m, 0.0, 12).generate(tasks, 2, 3) for m in (model, saved)), strict=True
    ):
        assert [r.token_ids for r in ours] == [r.token_ids for r in theirs]
        assert [r.mean_logprob for r in ours] == pytest.approx([r.mean_logprob for r in theirs], abs=1e-4)


# ── from the configuration ────────────────────────────────────────────────────────────────────────────


def adapter_of(**learner: Any) -> dict[str, Tensor]:
    model, _, _ = thinking(configured(**learner))
    assert model
    return {name: weight for name, weight in model.network.named_parameters() if weight.requires_grad}


def test_rank_and_scale_arrive() -> None:
    found = adapter_of(lora_rank=3, lora_scale=1.5)
    assert all(".lora_" in name for name in found)
    assert {min(weight.shape) for weight in found.values()} == {3}
    model, _, _ = thinking(configured(lora_rank=3, lora_scale=1.5))
    assert model
    assert {layer.scaling["default"] for _, layer in adapted_layers(model.network)} == {1.5}
    assert not any(".lora_" in name for name in adapter_of())


def test_the_same_seed_begins_with_the_same_adapter() -> None:
    before = torch.get_rng_state()
    first, again = (adapter_of(lora_rank=2) for _ in range(2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert torch.equal(torch.get_rng_state(), before)


def test_an_adapter_that_nothing_trains_is_refused() -> None:
    with pytest.raises(UsageError, match=r"lora_rank = 4: .*'none' learns nothing; set"):
        thinking(configured(kind="none", lora_rank=4))


def test_without_peft_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingError, match=r"needs peft; pip install 'waggledance\[lora\]'"):
        thinking(configured(lora_rank=4))
