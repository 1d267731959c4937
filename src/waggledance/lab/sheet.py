"""A sheet: the answers of one batched call while they are written, token by token.

A slot is one completion of one node, [N, slots]. Every slot has its own row of random numbers, drawn as
`policy/hf.py` draws them, and what has ended is computed no further once enough has.
"""

# pyright: standard

from collections.abc import Sequence

import torch
from torch import Tensor

from waggledance.lab.llama import Packing
from waggledance.lab.thinkers import Asked

THIN = 0.75
"""Slots that have ended are left out once no more than this share of those computed goes on: leaving out has
its cost, too."""


class Sheet:
    def __init__(self, asked: Sequence[Asked], limit: int, ends: Sequence[int], device: torch.device) -> None:
        self.limit = limit
        counts = [len(one.tasks) * one.completions for one in asked]
        shape = len(asked), max(counts)
        self._chances = _chances(asked, limit, max(counts)).to(device)
        self._ends = torch.tensor(ends, device=device)
        self.tokens = torch.zeros(*shape, limit, dtype=torch.long, device=device)
        self._scores = torch.zeros(*shape, limit, device=device)
        self.lengths = torch.full(shape, limit, device=device)
        used = torch.arange(max(counts), device=device) < torch.tensor(counts, device=device)[:, None]
        self._used = used
        self._ended = ~used
        self.going = Packing(used)
        self.written = 0

    def write(self, logits_NMV: Tensor, temperature: float) -> bool:
        """One more token in every slot that goes on; whether any still does and has room."""
        at, going = self.written, self.going
        logprobs = torch.log_softmax(logits_NMV.float() / temperature, -1)
        tokens = _drawn_from(logprobs.exp(), going.packed(self._chances[:, at]))
        self.tokens[:, :, at] = going.spread(tokens, self.tokens[:, :, at])
        chosen = logprobs.gather(-1, tokens[..., None])[..., 0]
        self._scores[:, :, at] = going.spread(chosen, self._scores[:, :, at])
        ending = torch.isin(self.tokens[:, :, at], self._ends) & ~self._ended
        self.lengths[ending] = at + 1
        self._ended |= ending
        self.written += 1
        if self.written == self.limit or bool(self._ended.all()):
            return False
        thinner = Packing(~self._ended, THIN * going.width / going.slots)
        self.going = thinner if thinner.width < going.width else going
        return True

    @property
    def newest(self) -> Tensor:
        """[N, M], of the slots that go on."""
        return self.going.packed(self.tokens[:, :, self.written - 1])

    @property
    def finished(self) -> Tensor:
        return self._ended & self._used

    @property
    def mean_logprobs(self) -> Tensor:
        steps = torch.arange(self.limit, device=self._scores.device)
        return (self._scores * (steps < self.lengths[..., None])).sum(-1) / self.lengths


def _chances(asked: Sequence[Asked], limit: int, slots: int) -> Tensor:
    """[N, step, slot]: each node's own stream, a number a slot and step, ended or not."""
    chances = torch.zeros(len(asked), limit, slots)
    for place, one in enumerate(asked):
        count = len(one.tasks) * one.completions
        generator = torch.Generator().manual_seed(one.seed)
        chances[place, :, :count] = torch.rand(limit * count, generator=generator).view(limit, count)
    return chances


def _drawn_from(probabilities: Tensor, chances: Tensor) -> Tensor:
    """As in `policy/hf.py`, where the reasons stand."""
    sums = probabilities.cumsum(-1)
    total = sums[..., -1:]
    below = torch.nextafter(total, torch.zeros_like(total))
    aim = torch.minimum(chances[..., None] * total, below)
    return torch.searchsorted(sums, aim, right=True)[..., 0]
