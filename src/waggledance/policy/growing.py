"""Rollouts while they grow: logits of what may come next, for all that go on, one token at a time.

`Shared` is for networks that are proven to share prompts; `Plain` for all others, over transformers' own
cache, in which every completion has a copy of its prompt.
"""

# pyright: standard

import torch
from torch import Tensor
from transformers import DynamicCache

from waggledance.cache import Cache
from waggledance.forward import begin, go_on, next_logits, products_of
from waggledance.model import Model


class Shared:
    def __init__(self, model: Model, prompts: list[list[int]], completions: int, max_tokens: int) -> None:
        self._network, self._completions = model.network, completions
        self._cache = Cache(prompts, completions, max_tokens, model.device)

    def first(self) -> Tensor:
        """After the prompts, [rows, vocabulary]."""
        logits = next_logits(self._network, begin(self._network, self._cache)).float()
        return logits.repeat_interleave(self._completions, 0)

    def next(self, tokens: Tensor) -> Tensor:
        return next_logits(self._network, go_on(self._network, self._cache, tokens)).float()

    def keep(self, kept: Tensor) -> None:
        """Of the rows that were computed last, these go on."""
        self._cache.keep(kept)


class Plain:
    def __init__(self, model: Model, prompts: list[list[int]], completions: int) -> None:
        self._network, self._completions = model.network, completions
        self._ids, self._mask = _left_padded(prompts, model.pad_id, model.device)
        self._cache = DynamicCache(config=model.network.config)

    def first(self) -> Tensor:
        logits = self._step(self._ids, (self._mask.cumsum(1) - 1).clamp(min=0))
        self._cache.batch_repeat_interleave(self._completions)
        self._mask = self._mask.repeat_interleave(self._completions, 0)
        return logits.repeat_interleave(self._completions, 0)

    def next(self, tokens: Tensor) -> Tensor:
        self._mask = torch.cat([self._mask, self._mask.new_ones(len(tokens), 1)], 1)
        return self._step(tokens[:, None], self._mask.sum(1, keepdim=True) - 1)

    def keep(self, kept: Tensor) -> None:
        self._mask = self._mask[kept]
        self._cache.batch_select_indices(kept)

    def _step(self, ids: Tensor, positions: Tensor) -> Tensor:
        with products_of(self._network):
            out = self._network(
                input_ids=ids,
                attention_mask=self._mask,
                position_ids=positions,
                past_key_values=self._cache,
                use_cache=True,
                logits_to_keep=1,
            )
        return out.logits[:, -1].float()


def _left_padded(prompts: list[list[int]], pad_id: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Prompts end at the same column, so that the first drawn token follows each of them directly."""
    width = max(map(len, prompts))
    ids = [[pad_id] * (width - len(prompt)) + prompt for prompt in prompts]
    mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)
