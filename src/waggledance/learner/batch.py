"""Scored groups → tensors. Groups that credit nothing are left out here, before any forward pass.

Own rollouts keep the very tokens that were drawn; foreign ones are encoded by this node's own tokenizer. A
group with a rollout longer than this node allows is left out too: cut short, what is credited would not be
what was rewarded.
A row is a rollout; every prompt stands once, and `owner_R` says which prompt a row belongs to.
"""

# pyright: standard

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from waggledance.learner.correction import NEVER
from waggledance.learner.credit import group_relative
from waggledance.model import Model
from waggledance.rollout import Rollout, ScoredGroup, author_logprob


@dataclass(frozen=True, slots=True)
class Batch:
    """P prompts of at most S tokens, R rollouts of at most T."""

    prompt_ids_PS: Tensor
    """Left-padded: every prompt ends at the last column."""
    prompt_mask_PS: Tensor
    ids_RT: Tensor
    """Right-padded."""
    mask_RT: Tensor
    """1.0 where a token is trained on."""
    owner_R: Tensor
    credit_R: Tensor
    weight_R: Tensor
    rollouts: int
    """All rollouts of the batch: left-out ones count in the loss's mean, with a loss of zero."""
    author_R: Tensor | None = None
    """Each text's log-probability under its author, minus infinity where it is not to be corrected by it;
    None where nothing is."""

    @property
    def tokens(self) -> int:
        return int(self.mask_RT.sum().item())


def make_batch(
    model: Model,
    groups: Sequence[ScoredGroup],
    max_tokens: int,
    credit_of: Callable[[Tensor], Tensor] = group_relative,
    *,
    take_equal: bool = False,
) -> Batch | None:
    """None where no group is informative and fits: there is nothing to learn.

    `credit_of`: a group's rewards → its rollouts' credits. `take_equal` lets in groups whose rewards are all
    equal, for a learner that credits them by more than each other.
    """
    encoded = [_encode(model, scored) for scored in groups if take_equal or scored.informative]
    fitting = [group for group in encoded if group.longest <= max_tokens and group.length <= model.window]
    if not fitting:
        return None
    informative = [group.scored for group in fitting]
    prompts = [group.prompt for group in fitting]
    rows = [row for group in fitting for row in group.rows]
    sizes = torch.tensor([len(scored.rewards) for scored in informative])
    weights = torch.tensor([scored.weight for scored in informative], dtype=torch.float32)
    rewards = [torch.tensor(scored.rewards, dtype=torch.float32) for scored in informative]
    credit = torch.cat([credit_of(rewards_G) for rewards_G in rewards])
    prompt_width, width = max(map(len, prompts)), max(1, *map(len, rows))
    device, pad = model.device, model.pad_id
    return Batch(
        prompt_ids_PS=torch.tensor([[pad] * (prompt_width - len(p)) + p for p in prompts], device=device),
        prompt_mask_PS=torch.tensor(
            [[0] * (prompt_width - len(p)) + [1] * len(p) for p in prompts], device=device
        ),
        ids_RT=torch.tensor([[*row, *[pad] * (width - len(row))] for row in rows], device=device),
        mask_RT=torch.tensor([[1.0] * len(row) + [0.0] * (width - len(row)) for row in rows], device=device),
        owner_R=torch.arange(len(informative)).repeat_interleave(sizes).to(device),
        credit_R=credit.to(device),
        weight_R=weights.repeat_interleave(sizes).to(device),
        rollouts=sum(len(scored.rewards) for scored in groups),
        author_R=_author_scores(informative, device),
    )


def _author_scores(groups: Sequence[ScoredGroup], device: torch.device) -> Tensor | None:
    if not any(scored.doubted for scored in groups):
        return None
    return torch.tensor([score for scored in groups for score in author_scores(scored)], device=device)


def author_scores(scored: ScoredGroup) -> list[float]:
    rollouts = scored.group.rollouts
    return [author_logprob(rollout) if scored.doubted else NEVER for rollout in rollouts]


@dataclass(frozen=True, slots=True)
class _Encoded:
    scored: ScoredGroup
    prompt: list[int]
    rows: list[list[int]]

    @property
    def longest(self) -> int:
        return max(map(len, self.rows))

    @property
    def length(self) -> int:
        return len(self.prompt) + self.longest


def _encode(model: Model, scored: ScoredGroup) -> _Encoded:
    rows = [_token_ids(model, rollout) for rollout in scored.group.rollouts]
    return _Encoded(scored, model.prompt_ids(scored.task), rows)


def _token_ids(model: Model, rollout: Rollout) -> list[int]:
    return list(rollout.token_ids) or model.text_ids(rollout.text, finished=rollout.finished)
