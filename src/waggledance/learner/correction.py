"""Correction: how much a rollout counts that somebody else wrote, or this node when it was another.

By how likely this node finds the text beside how likely its author found it, a token: never more than an own
one, and not at all where it is so unlikely here that nothing written at home would push back.
"""

# pyright: standard

import torch
from torch import Tensor

POWER, FLOOR = 2.0, 0.5
"""The ratio counts squared, and one below the floor counts nothing (dev/LOG.md, "Mixes")."""
NEVER = float("-inf")
"""What stands for the author's log-probability where nothing is to be corrected."""


def trust(logprobs: Tensor, mask: Tensor, author: Tensor) -> Tensor:
    """[…, T], [..., T] and the whole text's log-probability under its author, […] → […], each in 0 … 1."""
    own = (logprobs * mask).sum(-1)
    ratio = ((own - author) / mask.sum(-1).clamp(min=1)).clamp(max=0).exp()
    return torch.where(ratio < FLOOR, torch.zeros_like(ratio), ratio**POWER)
