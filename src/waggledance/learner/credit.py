"""Credit: how much better a rollout did than the others of its group (the advantage)."""

# pyright: standard

import torch
from torch import Tensor

SMALLEST_SPREAD = 1e-4
"""Added to the standard deviation, as published; with rewards of 1 and 0 it changes nothing that matters."""


def group_relative(rewards_G: Tensor) -> Tensor:
    """(reward - mean) / standard deviation within the group; zero for a group of one."""
    if rewards_G.numel() < 2:
        return torch.zeros_like(rewards_G)
    return (rewards_G - rewards_G.mean()) / (rewards_G.std() + SMALLEST_SPREAD)


def centred(rewards_G: Tensor) -> Tensor:
    """reward - mean within the group: a group that is nearly all right or wrong is not made louder."""
    return rewards_G - rewards_G.mean()


def leave_one_out(rewards_G: Tensor) -> Tensor:
    """reward - mean of the others; zero for a group of one."""
    others = rewards_G.numel() - 1
    if others == 0:
        return torch.zeros_like(rewards_G)
    return rewards_G - (rewards_G.sum() - rewards_G) / others


def as_rewarded(rewards_G: Tensor) -> Tensor:
    """The reward itself, where a value head, not the group, says what was to be expected."""
    return rewards_G
