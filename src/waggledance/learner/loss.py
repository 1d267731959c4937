"""The clipped policy-gradient loss over a batch or a part of one, with an optional pull towards a reference.

All that comes out adds up over a batch's parts: what is divided by is known before any of them is computed.
"""

# pyright: standard

from dataclasses import dataclass

import torch
from torch import Tensor

from waggledance.learner.batch import Batch
from waggledance.learner.correction import trust
from waggledance.learner.variant import PLAIN, Variant, token_mean


@dataclass(frozen=True, slots=True)
class Clip:
    """How far a token's ratio may leave 1 before it stops counting: 1 - low … 1 + high."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Loss:
    value: Tensor
    kl: Tensor
    """Summed over rollouts, as `clipped` is."""
    clipped: Tensor
    missed: Tensor | None = None
    """The part of `value` that is the value head's; None where there is no such head."""


def policy_loss(
    new_RT: Tensor,
    old_RT: Tensor,
    reference_RT: Tensor | None,
    batch: Batch,
    clip: Clip,
    kl_weight: float,
    variant: Variant = PLAIN,
    credit_RT: Tensor | None = None,
) -> Loss:
    """One number a rollout, then the mean over all rollouts, weighed by who wrote them.

    Groups without credit never got here; the mean counts them all the same, so leaving them out saves their
    forward pass and changes neither loss nor step. The pull, where there is one, acts on the
    others only and is the same for all of them. `credit_RT` is for learners that credit every token apart.
    """
    credit = batch.credit_R[:, None] if credit_RT is None else credit_RT
    mask_RT = batch.mask_RT
    ratio = variant.ratio(new_RT - old_RT, mask_RT)
    clamped = ratio.clamp(1 - clip.low, 1 + clip.high)
    surrogate_RT = torch.min(ratio * credit, clamped * credit)
    kl_RT = torch.zeros_like(new_RT)
    if reference_RT is not None:
        ahead = reference_RT - new_RT
        kl_RT = ahead.exp() - ahead - 1  # unbiased, never negative (Schulman's k3)
    pulled_R = kl_weight * variant.total(kl_RT, mask_RT)
    weight_R = batch.weight_R
    if batch.author_R is not None:
        weight_R = weight_R * trust(old_RT, mask_RT, batch.author_R)
    value_R = pulled_R - weight_R * variant.total(surrogate_RT, mask_RT)
    clipped_RT = (clamped * credit < ratio * credit).float()
    return Loss(
        value=value_R.sum() / batch.rollouts,
        kl=token_mean(kl_RT, mask_RT).sum().detach(),
        clipped=token_mean(clipped_RT, mask_RT).sum().detach(),
    )


def value_loss(values_RT: Tensor, returns_RT: Tensor, batch: Batch) -> Tensor:
    """Half the squared miss, averaged as the policy's loss is."""
    missed_R = token_mean((values_RT - returns_RT) ** 2, batch.mask_RT) / 2
    return (batch.weight_R * missed_R).sum() / batch.rollouts
