"""Lots: what each of several nodes learns from in one step, as one batch, and their losses.

Scored groups come in; log-probabilities and one loss a node come out, each what `learner/` makes of the same
groups. A group that credits nothing, or does not fit, is left out as there, and counts in the mean as there.
"""

# pyright: standard

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from waggledance.lab.lexicon import Lexicon
from waggledance.lab.llama import Llamas, Packing, Prompts
from waggledance.learner.batch import author_scores
from waggledance.learner.correction import trust
from waggledance.learner.credit import group_relative
from waggledance.learner.loss import Clip
from waggledance.model import Model
from waggledance.rollout import ScoredGroup


@dataclass(frozen=True, slots=True)
class Lot:
    """One node's groups that are learned from."""

    node: int
    groups: list[ScoredGroup]
    prompts: list[list[int]]
    rows: list[list[list[int]]]
    rollouts: int
    """All of the node's, the left-out ones too."""

    @property
    def most_rows(self) -> int:
        return len(self.groups) * max(map(len, self.rows))


@dataclass(frozen=True, slots=True)
class Losses:
    """One number a node."""

    value: Tensor
    kl: Tensor
    clipped: Tensor


def make_lot(node: int, groups: Sequence[ScoredGroup], lexicon: Lexicon, max_tokens: int, window: int) -> Lot:
    lot = Lot(node, [], [], [], sum(len(scored.rewards) for scored in groups))
    for scored in groups:
        if not scored.informative:
            continue
        prompt = lexicon.prompt(scored.task)
        rows = [lexicon.ids(rollout) for rollout in scored.group.rollouts]
        longest = max(map(len, rows))
        if longest <= max_tokens and len(prompt) + longest <= window:
            lot.groups.append(scored)
            lot.prompts.append(prompt)
            lot.rows.append(rows)
    return lot


def padded_prompts(
    prompts: Sequence[Sequence[list[int]]], pad: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """[N, G, S], left-padded; a node with fewer groups than another has prompts of one padding token."""
    groups = max(map(len, prompts))
    width = max(len(prompt) for own in prompts for prompt in own)
    filled = [[*own, *[[pad]] * (groups - len(own))] for own in prompts]
    ids = [[[pad] * (width - len(prompt)) + prompt for prompt in own] for own in filled]
    mask = [[[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in own] for own in filled]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)


class LotBatch:
    def __init__(self, lots: Sequence[Lot], model: Model, temperature: float, device: torch.device) -> None:
        self._temperature = temperature
        self._prompt_ids, self._prompt_mask = padded_prompts(
            [lot.prompts for lot in lots], model.pad_id, device
        )
        N, G, _ = self._prompt_ids.shape
        C = max(len(rows) for lot in lots for rows in lot.rows)
        T = max(1, *(len(row) for lot in lots for rows in lot.rows for row in rows))
        nothing: list[int] = []
        rows = [[*own, *[nothing] * (C - len(own))] for lot in lots for own in _filled(lot.rows, G)]
        ids = [[[*row, *[model.pad_id] * (T - len(row))] for row in group] for group in rows]
        mask = [[[1.0] * len(row) + [0.0] * (T - len(row)) for row in group] for group in rows]
        self._ids = torch.tensor(ids, device=device).view(N, G, C, T)
        self._mask = torch.tensor(mask, device=device).view(N, G, C, T)
        credit = [_padded(group_relative(_rewards(scored)), C) for lot in lots for scored in lot.groups]
        places = [n * G + g for n, lot in enumerate(lots) for g in range(len(lot.groups))]
        weights = [scored.weight for lot in lots for scored in lot.groups]
        authors = [_padded(torch.tensor(author_scores(s)), C) for lot in lots for s in lot.groups]
        self._credit, self._weight = torch.zeros(N * G, C), torch.zeros(N * G)
        self._credit[places], self._weight[places] = torch.stack(credit), torch.tensor(weights)
        self._author = torch.zeros(N * G, C)
        self._author[places] = torch.stack(authors)
        self._author = self._author.view(N, G, C).to(device)
        self._credit = self._credit.view(N, G, C).to(device)
        self._weight = self._weight.view(N, G, 1).to(device)
        self._trained = torch.tensor([float(sum(map(len, lot.rows))) for lot in lots], device=device)
        self._rollouts = torch.tensor([float(lot.rollouts) for lot in lots], device=device)
        self._packing = Packing(self._mask[..., 1:].reshape(N, -1))

    @property
    def tokens(self) -> Tensor:
        return self._mask.sum((1, 2, 3))

    def logprobs(self, llamas: Llamas) -> Tensor:
        """[N, G, C, T]; what lies under the padding means nothing."""
        last, kept = llamas.prompts(self._prompt_ids, self._prompt_mask)
        N, G, C, T = self._ids.shape
        first = self._chosen(llamas.logits(last), self._ids[..., 0])
        if T == 1:
            return first[..., None]
        lengths, prompts = self._prompt_mask.sum(-1), Prompts(kept, self._prompt_mask)
        states = llamas.completions(self._ids[..., :-1], self._packing, lengths, prompts)
        following = self._packing.packed(self._ids[..., 1:].reshape(N, -1))
        rest = self._chosen(llamas.logits(states), following[..., None])[..., 0]
        return torch.cat([first[..., None], self._packing.spread(rest).view(N, G, C, T - 1)], -1)

    def losses(
        self, new: Tensor, old: Tensor, reference: Tensor | None, clip: Clip, kl_weight: float
    ) -> Losses:
        """`learner/loss.py`'s, for every node by itself."""
        credit = self._credit[..., None]
        ratio = (new - old).exp()
        clamped = ratio.clamp(1 - clip.low, 1 + clip.high)
        surrogate = torch.min(ratio * credit, clamped * credit)
        kl = torch.zeros_like(new)
        if reference is not None:
            ahead = reference - new
            kl = ahead.exp() - ahead - 1
        kl_NGC = self._token_mean(kl)
        weight = self._weight * trust(old, self._mask, self._author)
        value = kl_weight * kl_NGC - weight * self._token_mean(surrogate)
        clipped = self._token_mean((clamped * credit < ratio * credit).float())
        return Losses(
            value=value.sum((1, 2)) / self._rollouts,
            kl=kl_NGC.sum((1, 2)).detach() / self._trained,
            clipped=clipped.sum((1, 2)).detach() / self._trained,
        )

    def _chosen(self, logits: Tensor, ids: Tensor) -> Tensor:
        """The log-probabilities of the ids beside each state."""
        return torch.log_softmax(logits.float() / self._temperature, -1).gather(-1, ids)

    def _token_mean(self, values: Tensor) -> Tensor:
        return (values * self._mask).sum(-1) / self._mask.sum(-1).clamp(min=1)


def _filled(rows: list[list[list[int]]], groups: int) -> list[list[list[int]]]:
    return [*rows, *[list[list[int]]()] * (groups - len(rows))]


def _rewards(scored: ScoredGroup) -> Tensor:
    return torch.tensor(scored.rewards, dtype=torch.float32)


def _padded(credit_G: Tensor, width: int) -> Tensor:
    return torch.nn.functional.pad(credit_G, (0, width - len(credit_G)))
