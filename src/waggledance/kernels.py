"""Matrix products in float32 on the CPU, by whichever library is quicker there.

torch takes MKL, which leaves half of an AVX-512 core unused where its maker is not Intel; oneDNN, which is
in torch too, does not. Which one is taken hangs on the machine and the sizes alone, never on a stopwatch, so
that the same seed gives the same numbers again. Elsewhere, and for small models, all is as torch has it.
"""

# pyright: standard

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


def install(network: nn.Module) -> None:
    """Big linear layers take the quick product from now on; where it is no quicker nothing is touched."""
    if ONEDNN:
        for module in network.modules():
            if type(module) is nn.Linear and module.weight.numel() >= SMALLEST_WEIGHT:
                module.__class__ = Linear
