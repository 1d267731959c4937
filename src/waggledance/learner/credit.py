"""Credit: how much better a rollout did than the others of its group (GRPO's advantage)."""

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
