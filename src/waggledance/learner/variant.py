"""Variants of GRPO: three choices each, one line each. Which to take when: docs/learning.md.

How a group's rewards become credit; what a ratio is taken over; how a rollout's tokens become one number.
Every choice sees one group or one rollout alone, so that a batch may be learned from in parts.
"""

# pyright: standard

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from waggledance.learner.credit import centred, group_relative, leave_one_out


@dataclass(frozen=True, slots=True)
class Variant:
    credit: Callable[[Tensor], Tensor]
    """A group's rewards → its rollouts' credits."""
    ratio: Callable[[Tensor, Tensor], Tensor]
    """What each token's log-probability has grown by [R, T], and the mask → ratios [R, T] or [R, 1]."""
    total: Callable[[Tensor, Tensor], Tensor]
    """Numbers of tokens [R, T], and the mask → one a rollout [R]."""


def of_token(grown_RT: Tensor, _mask_RT: Tensor) -> Tensor:
    return grown_RT.exp()


def of_rollout(grown_RT: Tensor, mask_RT: Tensor) -> Tensor:
    """The whole rollout is one action: its probability now over its probability then."""
    return (grown_RT * mask_RT).sum(1, keepdim=True).exp().expand_as(grown_RT)


def of_rollout_per_token(grown_RT: Tensor, mask_RT: Tensor) -> Tensor:
    """The same to the power of 1 / length."""
    return token_mean(grown_RT, mask_RT)[:, None].exp().expand_as(grown_RT)


def token_mean(values_RT: Tensor, mask_RT: Tensor) -> Tensor:
    return (values_RT * mask_RT).sum(1) / mask_RT.sum(1).clamp(min=1)


def token_sum(values_RT: Tensor, mask_RT: Tensor, over: float) -> Tensor:
    return (values_RT * mask_RT).sum(1) / over


PLAIN = Variant(group_relative, of_token, token_mean)


def variant_named(name: str, max_tokens: int) -> Variant:
    return {
        "grpo": PLAIN,
        "dr_grpo": Variant(centred, of_token, partial(token_sum, over=max_tokens)),
        "rloo": Variant(leave_one_out, of_rollout, token_mean),
        "gspo": Variant(group_relative, of_rollout_per_token, token_mean),
    }[name]
