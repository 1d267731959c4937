"""Layers of big networks: the same numbers and gradients as torch's own."""

# pyright: standard

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.gemma.modeling_gemma import GemmaRMSNorm
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm

from waggledance import kernels
from waggledance.kernels import ONEDNN, Linear, install

WIDE = LlamaConfig(
    hidden_size=384, intermediate_size=512, num_hidden_layers=1, num_attention_heads=4, vocab_size=512
)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def gradients_of(module: nn.Module, rows: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Its output, and the gradients of its input and weights under a pull of its own for every number."""
    module.zero_grad()
    rows = rows.clone().requires_grad_()
    out = module(rows)
    (out * torch.linspace(-1, 2, out.numel()).view_as(out)).sum().backward()
    weights = [weight.grad for weight in module.parameters() if weight.grad is not None]
    assert rows.grad is not None
    return out.detach(), [rows.grad, *weights]


def assert_same(left: nn.Module, right: nn.Module, rows: Tensor) -> None:
    (ours, mine), (theirs, others) = gradients_of(left, rows), gradients_of(right, rows)
    assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-5 * float(theirs.abs().max()))
    for a, b in zip(mine, others, strict=True):
        assert (a - b).norm() <= 1e-5 * b.norm()


def installed(module: nn.Module) -> nn.Module:
    """Beside a layer that is big enough for anything to be done."""
    pair = nn.ModuleList([copy.deepcopy(module), nn.Linear(512, 512)])
    install(pair)
    return pair[0]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(40, 300), (3, 20, 300), (2, 300)])
def test_a_linear_layer_computes_what_it_did(bias: bool, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    plain = nn.Linear(300, 500, bias=bias)
    ours = installed(plain)
    assert type(ours) is (Linear if ONEDNN else nn.Linear)
    assert_same(ours, plain, torch.randn(shape))


@pytest.mark.parametrize("rows", [1, 16, 33])
def test_a_product_is_torch_s(rows: int) -> None:
    torch.manual_seed(0)
    left, weight, bias = torch.randn(rows, 400), torch.randn(600, 400), torch.randn(600)
    expected = functional.linear(left.double(), weight.double(), bias.double()).float()
    assert torch.allclose(kernels.product(left, weight, bias), expected, rtol=1e-4, atol=1e-3)
    across = kernels.product(left.t(), weight[:, :rows])  # neither lies in memory as it is read
    assert torch.allclose(across, left.t() @ weight[:, :rows].t(), rtol=1e-4, atol=1e-3)


def test_a_norm_and_a_gate_compute_what_they_did_and_keep_less() -> None:
    torch.manual_seed(0)
    norm, gate = LlamaRMSNorm(384, 1e-5), LlamaMLP(WIDE)
    nn.init.uniform_(norm.weight)
    rows = torch.randn(2, 30, 384)
    for module in (norm, gate):
        ours = installed(module)
        assert "forward" in vars(ours)
        assert_same(ours, module, rows)
        assert kept_bytes(ours, rows) < 0.7 * kept_bytes(module, rows)


def kept_bytes(module: nn.Module, rows: Tensor) -> int:
    kept: dict[int, int] = {}
    weights = {weight.data_ptr() for weight in module.parameters()}

    def note(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in weights:
            kept[tensor.data_ptr()] = tensor.nbytes
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        out = module(rows.clone().requires_grad_())
    del out
    return sum(kept.values())


def test_what_computes_something_else_under_the_same_name_is_left_alone() -> None:
    torch.manual_seed(0)
    norm = GemmaRMSNorm(384)  # it multiplies by 1 + weight
    nn.init.uniform_(norm.weight)
    rows = torch.randn(5, 384)
    assert "forward" not in vars(installed(norm))
    assert_same(installed(norm), norm, rows)
    gelu = LlamaMLP(LlamaConfig(hidden_size=384, intermediate_size=512, hidden_act="gelu"))
    assert "forward" not in vars(installed(gelu))


def test_a_small_network_is_left_as_it_is() -> None:
    small = nn.ModuleList([nn.Linear(32, 32), LlamaRMSNorm(32)])
    install(small)
    assert type(small[0]) is nn.Linear
    assert "forward" not in vars(small[1])


def test_a_copy_of_a_network_has_its_own_weights() -> None:
    """A reference is a copy: what its layers compute with must be its own."""
    torch.manual_seed(0)
    network = LlamaForCausalLM(WIDE)
    install(network)
    ids = torch.arange(40)[None]
    reference = copy.deepcopy(network)
    before = reference(input_ids=ids).logits
    with torch.no_grad():
        for weight in network.parameters():
            weight.mul_(1.5)
    assert torch.equal(reference(input_ids=ids).logits, before)
    assert not torch.equal(network(input_ids=ids).logits, before)
