"""Products in bfloat16, on the CPU and, where there is one, on an accelerator: near the float32 numbers."""

# pyright: standard

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from test_learner import RAGGED, SETTINGS, batch_of_everything, plain_logprobs, rows_of
from test_model import KINDS, toy_folder
from test_policy import TASKS
from waggledance.forward import proof_of
from waggledance.learner.grpo import GRPO
from waggledance.learner.logprobs import token_logprobs
from waggledance.model import load_model
from waggledance.policy.hf import HFPolicy

ACCELERATORS = [
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA here")),
    pytest.param(
        "mps", marks=pytest.mark.skipif(not torch.backends.mps.is_available(), reason="no MPS here")
    ),
]


@pytest.mark.parametrize("device", ["cpu", *ACCELERATORS])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", KINDS)
def test_log_probabilities_are_near_the_plain_ones_on_the_cpu(
    tmp_path: Path, kind: str, precision: str, device: str
) -> None:
    folder = str(toy_folder(tmp_path, kind))
    plain = load_model(folder, system_prompt="")
    model = load_model(folder, system_prompt="", device=device, precision=precision)
    assert proof_of(model.network).objection == ""
    batch = batch_of_everything(plain, RAGGED)
    placed = replace(
        batch,
        **{
            name: getattr(batch, name).to(device)
            for name in ("prompt_ids_PS", "prompt_mask_PS", "ids_RT", "mask_RT", "owner_R")
        },
    )
    with torch.no_grad():
        expected = plain_logprobs(plain, rows_of(plain, RAGGED), 1.0)
        found = token_logprobs(model.network, placed, 1.0).cpu()
    apart = ((found - expected) * batch.mask_RT).abs()
    if precision == "float32":
        assert apart.max() < (1e-4 if device == "cpu" else 5e-2)  # an accelerator may round to TensorFloat-32
    else:
        assert 1e-6 < apart.mean() < 0.1


@pytest.mark.parametrize("device", ["cpu", *ACCELERATORS])
def test_a_node_draws_and_learns_in_bfloat16(tmp_path: Path, device: str) -> None:
    folder = str(toy_folder(tmp_path))
    model = load_model(folder, system_prompt="", device=device, precision="bfloat16")
    drawn = HFPolicy(model, 1.0, 12).generate(TASKS, 3, 1)
    assert all(rollout.mean_logprob < 0 for group in drawn for rollout in group)
    before = [weight.detach().clone() for weight in model.network.parameters()]
    lesson = GRPO(model, SETTINGS).learn(RAGGED)
    assert lesson.grad_norm > 0
    assert {weight.dtype for weight in model.network.parameters()} == {torch.float32}
    assert any(not torch.equal(a, b) for a, b in zip(before, model.network.parameters(), strict=True))
