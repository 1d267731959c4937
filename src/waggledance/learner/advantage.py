"""Generalised advantage estimation: credit for every token, from what a value head expected along the way.

The reward comes with a rollout's last token. A_t = δ_t + γλ A_{t+1}, δ_t = r_t + γ V_{t+1} - V_t, and
nothing is expected after the end (Schulman et al., 2015, eq. 16).
"""

# pyright: standard

import torch
from torch import Tensor


def generalised_advantages(
    reward_R: Tensor, values_RT: Tensor, mask_RT: Tensor, discount: float, trace: float
) -> Tensor:
    """[R, T]; zero under the padding. `trace` is λ: 1 waits for the reward, 0 trusts the next value."""
    rewards_RT = _at_the_last_token(reward_R, mask_RT)
    advantages_RT = torch.zeros_like(values_RT)
    later_R = torch.zeros_like(reward_R)
    next_value_R = torch.zeros_like(reward_R)
    for t in reversed(range(values_RT.shape[1])):
        surprise_R = rewards_RT[:, t] + discount * next_value_R - values_RT[:, t]
        later_R = (surprise_R + discount * trace * later_R) * mask_RT[:, t]
        next_value_R = values_RT[:, t] * mask_RT[:, t]
        advantages_RT[:, t] = later_R
    return advantages_RT


def _at_the_last_token(reward_R: Tensor, mask_RT: Tensor) -> Tensor:
    is_last_RT = mask_RT.cumsum(1) == mask_RT.sum(1, keepdim=True)
    return reward_R[:, None] * (is_last_RT * mask_RT)
