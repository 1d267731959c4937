"""The clipped policy-gradient loss over a batch, with an optional pull towards a reference."""

# pyright: standard

from dataclasses import dataclass

import torch
from torch import Tensor

from waggledance.learner.batch import Batch


@dataclass(frozen=True, slots=True)
class Clip:
    """How far a token's ratio may leave 1 before it stops counting: 1 - low … 1 + high."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Loss:
    value: Tensor
    kl: Tensor
    clipped: Tensor


def policy_loss(
    new_RT: Tensor, old_RT: Tensor, reference_RT: Tensor | None, batch: Batch, clip: Clip, kl_weight: float
) -> Loss:
    """Mean over each rollout's tokens, then over all rollouts, weighed by who wrote them.

    Groups without credit never got here; the mean counts them all the same, so leaving them out saves their
    forward pass and changes neither loss nor step. The pull, where there is one, acts on the
    others only and is the same for all of them.
    """
    credit_R1 = batch.credit_R[:, None]
    ratio = (new_RT - old_RT).exp()
    clamped = ratio.clamp(1 - clip.low, 1 + clip.high)
    surrogate_RT = torch.min(ratio * credit_R1, clamped * credit_R1)
    kl_RT = torch.zeros_like(new_RT)
    if reference_RT is not None:
        ahead = reference_RT - new_RT
        kl_RT = ahead.exp() - ahead - 1  # unbiased, never negative (Schulman's k3)
    value_R = kl_weight * _token_mean(kl_RT, batch) - batch.weight_R * _token_mean(surrogate_RT, batch)
    clipped_RT = (clamped * credit_R1 < ratio * credit_R1).float()
    return Loss(
        value=value_R.sum() / batch.rollouts,
        kl=_token_mean(kl_RT, batch).mean().detach(),
        clipped=_token_mean(clipped_RT, batch).mean().detach(),
    )


def _token_mean(values_RT: Tensor, batch: Batch) -> Tensor:
    return (values_RT * batch.mask_RT).sum(1) / batch.mask_RT.sum(1).clamp(min=1)
