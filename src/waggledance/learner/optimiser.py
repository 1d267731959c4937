"""Adam over some weights, with the gradient's norm kept down: one step at a time, or none at all.

A gradient that is not finite makes no step; too many of them in a row end the run.
"""

# pyright: standard

from collections.abc import Sequence

import torch
from torch import Tensor

from waggledance.allocator import give_back
from waggledance.errors import DivergedError

LARGE_BYTES = 64 << 20
"""Of weights. Below, what might be given back is not worth the milliseconds."""


class Optimiser:
    def __init__(
        self,
        weights: Sequence[Tensor],
        learning_rate: float,
        max_grad_norm: float,
        *,
        apart: Sequence[Tensor] = (),
        apart_learning_rate: float = 0.0,
        max_skipped: int = 5,
    ) -> None:
        """`apart`: weights with a learning rate of their own, whose gradient is not kept down."""
        self._weights = list(weights)
        self._learning_rate = learning_rate
        self._max_grad_norm = max_grad_norm
        self._max_skipped = max_skipped
        self._skipped = 0
        self._is_large = sum(weight.nbytes for weight in self._weights) >= LARGE_BYTES
        groups = [{"params": self._weights, "lr": learning_rate}]
        if apart:
            groups.append({"params": list(apart), "lr": apart_learning_rate})
        # Fused: one pass over weights, gradients and moments, and nothing beside them in memory.
        self.adam = torch.optim.Adam(
            groups, fused=all(weight.device.type == "cpu" for weight in self._weights)
        )

    def clear(self) -> None:
        self.adam.zero_grad(set_to_none=True)
        if self._is_large:
            give_back()

    def step(self) -> float:
        """By the gradients gathered since `clear`; their norm. One that is not finite made no step."""
        norm = torch.nn.utils.clip_grad_norm_(self._weights, self._max_grad_norm)
        if torch.isfinite(norm):
            self._skipped = 0
            self.adam.step()
            return float(norm)
        self._skipped += 1
        if self._skipped > self._max_skipped:
            raise DivergedError(
                f"the gradient's norm was {norm.item()} in {self._skipped} steps in a row and none was made; "
                f"learner.max_skipped allows {self._max_skipped}; lower learner.learning_rate "
                f"(now {self._learning_rate})"
            )
        return float(norm)
