"""Reading: how likely a text is, token by token, under this node's own model.

Groups come in, with the tasks they answer; log-probabilities go out, nothing is learned. Every prompt is
computed once, and the vocabulary's scores never stand in memory for more than a slice of the tokens.
"""

# pyright: standard

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import DynamicCache

from waggledance.model import Model
from waggledance.rollout import Group, Rollout
from waggledance.task import Task

SLICE_TOKENS = 512
"""So many tokens' scores at a time: a hundred megabytes with a vocabulary of fifty thousand."""


@dataclass(frozen=True, slots=True)
class HFReader:
    model: Model
    temperature: float
    """The policy's, so that its own text reads as it was drawn; 0 reads as 1."""
    max_tokens: int
    """A longer completion is read so far: what stands behind is never learned either."""

    def logprobs(self, tasks: Sequence[Task], groups: Sequence[Group]) -> list[tuple[tuple[float, ...], ...]]:
        return [self._read(task, group) for task, group in zip(tasks, groups, strict=True)]

    @torch.no_grad()
    def _read(self, task: Task, group: Group) -> tuple[tuple[float, ...], ...]:
        prompt = self.model.prompt_ids(task)
        room = min(self.max_tokens, self.model.window - len(prompt))
        rows = [self._token_ids(rollout)[: max(0, room)] for rollout in group.rollouts]
        width = max(map(len, rows))
        if width == 0:
            return tuple(() for _ in rows)
        ids = [row + [self.model.pad_id] * (width - len(row)) for row in rows]
        scores = self._scores(prompt, torch.tensor(ids, device=self.model.device)).tolist()
        return tuple(tuple(line[: len(row)]) for line, row in zip(scores, rows, strict=True))

    def _scores(self, prompt: list[int], ids_RT: Tensor) -> Tensor:
        cache = DynamicCache(config=self.model.network.config)
        logits = self._step(torch.tensor([prompt], device=self.model.device), cache, logits_to_keep=1)
        rows, width = ids_RT.shape
        cache.batch_repeat_interleave(rows)
        scores = [self._gathered(logits.expand(rows, 1, -1), ids_RT[:, :1])]
        step = max(1, SLICE_TOKENS // rows)
        # Padding needs no mask: it stands behind everything that is read.
        for start in range(0, width - 1, step):
            end = min(start + step, width - 1)
            logits = self._step(ids_RT[:, start:end], cache)
            scores.append(self._gathered(logits, ids_RT[:, start + 1 : end + 1]))
        return torch.cat(scores, 1)

    def _step(self, ids: Tensor, cache: DynamicCache, logits_to_keep: int = 0) -> Tensor:
        return self.model.network(
            input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=logits_to_keep
        ).logits

    def _gathered(self, logits_RTV: Tensor, ids_RT: Tensor) -> Tensor:
        scaled = logits_RTV.float() / (self.temperature or 1.0)
        return scaled.gather(-1, ids_RT[..., None])[..., 0] - scaled.logsumexp(-1)

    def _token_ids(self, rollout: Rollout) -> list[int]:
        return list(rollout.token_ids) or self.model.text_ids(rollout.text, finished=rollout.finished)
