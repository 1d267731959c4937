"""Policy `hf`: a Hugging Face causal language model answers.

Tasks come in, rollouts go out: text, its length, its log-probability and the very tokens drawn. Every
prompt is computed once and its cache repeated for its completions. It must not know rewards or peers.
"""

# pyright: standard

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import DynamicCache

from waggledance.errors import ModelError
from waggledance.model import Model
from waggledance.rollout import Rollout
from waggledance.task import Task


@dataclass(frozen=True, slots=True)
class HFPolicy:
    model: Model
    temperature: float
    max_tokens: int
    """The most tokens of one completion, end token included."""

    def generate(self, tasks: Sequence[Task], completions: int, seed: int) -> list[tuple[Rollout, ...]]:
        if not tasks:
            return []
        prompts = [self.model.prompt_ids(task) for task in tasks]
        self._check_window(tasks, prompts)
        generator = torch.Generator(self.model.device).manual_seed(seed)
        rows = self._draw(prompts, completions, generator)
        return [tuple(rows[start : start + completions]) for start in range(0, len(rows), completions)]

    def _check_window(self, tasks: Sequence[Task], prompts: list[list[int]]) -> None:
        room = self.model.window - self.max_tokens
        for task, prompt in zip(tasks, prompts, strict=True):
            if len(prompt) > room:
                raise ModelError(
                    f"the prompt of {task.source} {task.index} has {len(prompt)} tokens, but "
                    f"{self.model.name} has room for {room} beside {self.max_tokens} of answer; "
                    "lower policy.max_tokens or ask shorter questions"
                )

    @torch.no_grad()
    def _draw(self, prompts: list[list[int]], completions: int, generator: torch.Generator) -> list[Rollout]:
        model, rows = self.model, len(prompts) * completions
        prompt_ids, mask = _left_padded(prompts, model.pad_id, model.device)
        cache = DynamicCache(config=model.network.config)
        logits = self._step(prompt_ids, mask, _positions(mask), cache)
        cache.batch_repeat_interleave(completions)
        logits = logits.repeat_interleave(completions, 0)
        mask = mask.repeat_interleave(completions, 0)

        drawn = torch.full((rows, self.max_tokens), model.pad_id, device=model.device)
        logprobs = torch.zeros(rows, self.max_tokens, device=model.device)
        lengths = torch.full((rows,), self.max_tokens, device=model.device)
        running = torch.arange(rows, device=model.device)
        ends = torch.tensor(model.end_ids, device=model.device)
        for step in range(self.max_tokens):
            # A number for every row, ended or not: what one row draws hangs on no other.
            chances = torch.rand(rows, generator=generator, device=model.device)
            tokens, scores = self._choose(logits, chances[running])
            drawn[running, step], logprobs[running, step] = tokens, scores
            goes_on = ~torch.isin(tokens, ends)
            lengths[running[~goes_on]] = step + 1
            if not goes_on.all():  # what has ended is computed no further
                kept = goes_on.nonzero()[:, 0]
                running, tokens, mask = running[kept], tokens[kept], mask[kept]
                cache.batch_select_indices(kept)
            if not len(running) or step + 1 == self.max_tokens:
                break
            mask = torch.cat([mask, mask.new_ones(len(running), 1)], 1)
            logits = self._step(tokens[:, None], mask, mask.sum(1, keepdim=True) - 1, cache)
        return self._rollouts(drawn, logprobs, lengths, set(running.tolist()))

    def _step(self, ids: Tensor, mask: Tensor, positions: Tensor, cache: DynamicCache) -> Tensor:
        out = self.model.network(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return out.logits[:, -1].float()

    def _choose(self, logits: Tensor, chances: Tensor) -> tuple[Tensor, Tensor]:
        """One token a row and its log-probability under the distribution that it was drawn from."""
        greedy = self.temperature == 0
        logprobs = torch.log_softmax(logits if greedy else logits / self.temperature, -1)
        tokens = logprobs.argmax(-1) if greedy else _drawn_from(logprobs.exp(), chances)
        return tokens, logprobs.gather(-1, tokens[:, None])[:, 0]

    def _rollouts(
        self, drawn: Tensor, logprobs: Tensor, lengths: Tensor, unfinished: set[int]
    ) -> list[Rollout]:
        rollouts: list[Rollout] = []
        for place, (row, scores, length) in enumerate(
            zip(drawn.tolist(), logprobs.tolist(), lengths.tolist(), strict=True)
        ):
            ids = tuple(row[:length])
            rollouts.append(
                Rollout(
                    text=self.model.text(ids),
                    finished=place not in unfinished,
                    tokens=length,
                    mean_logprob=sum(scores[:length]) / length,
                    token_ids=ids,
                )
            )
        return rollouts


def _drawn_from(probabilities: Tensor, chances: Tensor) -> Tensor:
    """One token a row by one random number a row; torch's multinomial takes one a token of the vocabulary."""
    sums = probabilities.cumsum(-1)
    total = sums[:, -1:]
    below = torch.nextafter(total, torch.zeros_like(total))  # a product may round up to the total itself
    # Where sums are flat the chance is zero: right=True steps over tokens that cannot be drawn.
    return torch.searchsorted(sums, torch.minimum(chances[:, None] * total, below), right=True)[:, 0]


def _left_padded(prompts: list[list[int]], pad_id: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Prompts end at the same column, so that the first drawn token follows each of them directly."""
    width = max(map(len, prompts))
    ids = [[pad_id] * (width - len(prompt)) + prompt for prompt in prompts]
    mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)


def _positions(mask: Tensor) -> Tensor:
    return (mask.cumsum(1) - 1).clamp(min=0)
