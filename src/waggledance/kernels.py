"""Layers of big networks as this machine does them best: float32 products, norms and gates that keep little.

torch takes MKL, which leaves half of an AVX-512 core unused where its maker is not Intel; oneDNN, which is
in torch too, does not. Which one is taken hangs on the machine and the sizes alone, never on a stopwatch, so
that the same seed gives the same numbers again. Elsewhere, and for small models, all is as torch has it.
"""

# pyright: standard

from collections.abc import Callable
from types import MethodType
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

FEWEST_ROWS = 16
SMALLEST_WEIGHT = 1 << 17
"""Below these, finding the kernel costs more than it saves."""
ONEDNN = (
    torch.backends.mkldnn.is_available()
    and torch.backends.cpu.get_cpu_capability().startswith("AVX512")
    and hasattr(torch.ops.mkldnn, "_linear_pointwise")
)


def suits(rows: Tensor, weight: Tensor) -> bool:
    return (
        ONEDNN
        and weight.numel() >= SMALLEST_WEIGHT
        and rows.dim() == 2
        and rows.shape[0] >= FEWEST_ROWS
        and rows.dtype == weight.dtype == torch.float32
        and rows.device.type == "cpu"
        and not torch.is_autocast_enabled("cpu")
    )


def product(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """rows [n, i] times weight [o, i] transposed. Without gradients."""
    if suits(rows, weight):
        return torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")
    return functional.linear(rows, weight, bias)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(rows, weight)
        return product(rows, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (rows, weight), grad = ctx.saved_tensors, grads[0]
        for_rows, for_weight, for_bias = ctx.needs_input_grad
        return (
            product(grad, weight.t()) if for_rows else None,
            product(grad.t(), rows.t()) if for_weight else None,
            grad.sum(0) if for_bias else None,
        )


class Linear(nn.Linear):
    """torch's own, weights and all, with the product above."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's word
        rows = input.flatten(0, -2)
        if not suits(rows, self.weight):
            return functional.linear(input, self.weight, self.bias)
        out = cast("Tensor", _Product.apply(rows, self.weight, self.bias))
        return out.view(*input.shape[:-1], -1)


class _RMSNorm(torch.autograd.Function):
    """Keeps its input and a number a row; torch's own pieces keep two more tensors of the input's size."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        scale = torch.linalg.vector_norm(rows, dim=-1, keepdim=True).square_().div_(rows.shape[-1])
        scale = scale.add_(epsilon).rsqrt_()
        ctx.save_for_backward(rows, weight, scale)
        return (rows * scale).mul_(weight)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (rows, weight, scale), grad = ctx.saved_tensors, grads[0]
        even = rows * scale
        for_weight = (grad * even).flatten(0, -2).sum(0) if ctx.needs_input_grad[1] else None
        grad = grad * weight
        mean = (grad * even).mean(-1, keepdim=True)
        return grad.sub_(even.mul_(mean)).mul_(scale), for_weight, None


class _GatedProduct(torch.autograd.Function):
    """silu(gate) * up, times the weight. What stands in between is computed again in the backward pass."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(gate, up, weight)
        return product(functional.silu(gate).mul_(up), weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (gate, up, weight), grad = ctx.saved_tensors, grads[0]
        _, _, for_weight, for_bias = ctx.needs_input_grad
        sigmoid = gate.sigmoid()
        opened = gate * sigmoid
        weights = product(grad.t(), (opened * up).t()) if for_weight else None
        inner = product(grad, weight.t())
        for_up = inner * opened
        slope = torch.addcmul(sigmoid + opened, opened, sigmoid, value=-1)  # of silu
        return inner.mul_(up).mul_(slope), for_up, weights, grad.sum(0) if for_bias else None


def _norm(self: Any, hidden_states: Tensor) -> Tensor:
    if hidden_states.dtype != torch.float32 or torch.is_autocast_enabled(hidden_states.device.type):
        return type(self).forward(self, hidden_states)
    epsilon = self.variance_epsilon if hasattr(self, "variance_epsilon") else self.eps
    return cast("Tensor", _RMSNorm.apply(hidden_states, self.weight, epsilon))


def _gated(self: Any, x: Tensor) -> Tensor:
    down = self.down_proj
    # An adapter wraps what it adapts: then everything stays as it was.
    if type(down) not in (nn.Linear, Linear) or torch.is_autocast_enabled(x.device.type):
        return type(self).forward(self, x)
    gate, up = self.gate_proj(x).flatten(0, -2), self.up_proj(x).flatten(0, -2)
    out = cast("Tensor", _GatedProduct.apply(gate, up, down.weight, down.bias))
    return out.view(*x.shape[:-1], -1)


def install(network: nn.Module) -> None:
    """Big layers take the ways above from now on, each that is proven to compute what they compute."""
    if not any(_is_big(module) for module in network.modules()):
        return
    for module in network.modules():
        if ONEDNN and type(module) is nn.Linear and _is_big(module):
            module.__class__ = Linear
        elif type(module).__name__.endswith("RMSNorm") and getattr(module, "weight", None) is not None:
            _replace(module, _norm, cast("Tensor", module.weight).shape[0])
        elif all(hasattr(module, name) for name in ("gate_proj", "up_proj", "down_proj")):
            _replace(module, _gated, getattr(module.gate_proj, "in_features", 0))


def _is_big(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) and module.weight.numel() >= SMALLEST_WEIGHT


@torch.no_grad()
def _replace(module: nn.Module, forward: Callable[[Any, Tensor], Tensor], width: int) -> None:
    rows = torch.randn(3, width, generator=torch.Generator().manual_seed(0))
    try:
        ours, theirs = forward(module, rows), module(rows)
    except (AttributeError, RuntimeError, TypeError):
        return  # made of other parts than its name says
    if ours.shape == theirs.shape and (ours - theirs).abs().max() <= 1e-5 * theirs.abs().max():
        module.forward = MethodType(forward, module)
