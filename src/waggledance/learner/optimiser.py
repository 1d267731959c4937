"""Adam over some weights, with the gradient's norm kept down: one step at a time, or none at all."""

# pyright: standard

from collections.abc import Sequence

import torch
from torch import Tensor

from waggledance.errors import ModelError


class Optimiser:
    def __init__(
        self,
        weights: Sequence[Tensor],
        learning_rate: float,
        max_grad_norm: float,
        *,
        apart: Sequence[Tensor] = (),
        apart_learning_rate: float = 0.0,
    ) -> None:
        """`apart`: weights with a learning rate of their own, whose gradient is not kept down."""
        self._weights = list(weights)
        self._learning_rate = learning_rate
        self._max_grad_norm = max_grad_norm
        groups = [{"params": self._weights, "lr": learning_rate}]
        if apart:
            groups.append({"params": list(apart), "lr": apart_learning_rate})
        self.adam = torch.optim.Adam(groups)

    def clear(self) -> None:
        self.adam.zero_grad(set_to_none=True)

    def step(self) -> float:
        """By the gradients that have gathered since `clear`; their norm."""
        norm = torch.nn.utils.clip_grad_norm_(self._weights, self._max_grad_norm)
        if not torch.isfinite(norm):
            raise ModelError(
                f"the gradient's norm is {norm.item()}, so this step would destroy the model; "
                f"lower learner.learning_rate (now {self._learning_rate})"
            )
        self.adam.step()
        return float(norm)
