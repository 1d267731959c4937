"""Learner `grpo`: group-relative policy optimisation.

Scored groups come in, the model's weights move, a lesson goes out. It cannot tell own groups from foreign
ones but by the weight it is handed; without an informative group it takes no step at all.
"""

# pyright: standard

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from waggledance.errors import ModelError
from waggledance.learner.batch import Batch, make_batch
from waggledance.learner.logprobs import token_logprobs
from waggledance.learner.loss import Clip, Loss, policy_loss
from waggledance.model import Model
from waggledance.rollout import ScoredGroup
from waggledance.seams import Lesson


@dataclass(frozen=True, slots=True)
class GRPOSettings:
    learning_rate: float
    clip: Clip
    kl_weight: float
    max_grad_norm: float
    epochs: int
    """Steps taken on one batch: from the second on the clipped ratio matters."""
    temperature: float
    """The policy's, so that ratios compare what was sampled from."""
    max_tokens: int


class GRPO:
    def __init__(self, model: Model, settings: GRPOSettings) -> None:
        self._model = model
        self._settings = settings
        self._weights = [weight for weight in model.network.parameters() if weight.requires_grad]
        self._optimiser = torch.optim.Adam(self._weights, lr=settings.learning_rate)
        self._reference: PreTrainedModel | None = None
        if settings.kl_weight > 0:
            self._reference = copy.deepcopy(model.network).requires_grad_(requires_grad=False)

    def learn(self, groups: Sequence[ScoredGroup]) -> Lesson:
        batch = make_batch(self._model, groups, self._settings.max_tokens)
        if batch is None:
            return Lesson(groups=0, tokens=0, loss=0.0, grad_norm=0.0, kl=0.0, clipped=0.0)
        reference = self._reference_logprobs(batch)
        old: Tensor | None = None
        losses: list[Loss] = []
        norms: list[float] = []
        for _ in range(self._settings.epochs):
            new = token_logprobs(self._model.network, batch, self._settings.temperature)
            old = new.detach() if old is None else old
            loss = policy_loss(new, old, reference, batch, self._settings.clip, self._settings.kl_weight)
            losses.append(loss)
            norms.append(self._step(loss.value))
        return Lesson(
            groups=int(batch.owner_R[-1]) + 1,
            tokens=batch.tokens,
            loss=_mean([loss.value for loss in losses]),
            grad_norm=sum(norms) / len(norms),
            kl=_mean([loss.kl for loss in losses]),
            clipped=_mean([loss.clipped for loss in losses]),
        )

    @torch.no_grad()
    def _reference_logprobs(self, batch: Batch) -> Tensor | None:
        if self._reference is None:
            return None
        return token_logprobs(self._reference, batch, self._settings.temperature)

    def _step(self, loss: Tensor) -> float:
        self._optimiser.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self._weights, self._settings.max_grad_norm)
        if not torch.isfinite(norm):
            raise ModelError(
                f"the gradient's norm is {norm.item()}, so this step would destroy the model; "
                f"lower learner.learning_rate (now {self._settings.learning_rate})"
            )
        self._optimiser.step()
        return float(norm)


def _mean(values: list[Tensor]) -> float:
    return float(torch.stack([value.detach() for value in values]).mean())
