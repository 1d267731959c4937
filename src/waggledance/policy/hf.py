"""Policy `hf`: a Hugging Face causal language model answers.

Tasks come in, rollouts go out: text, its length, its log-probability and the very tokens drawn. Every
prompt is computed once. It must not know rewards or peers.
"""

# pyright: standard

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from waggledance.errors import ModelError
from waggledance.forward import proof_of
from waggledance.model import Model
from waggledance.policy.growing import Plain, Shared
from waggledance.policy.waves import Room, Wave
from waggledance.rollout import Rollout
from waggledance.task import Task


@dataclass(frozen=True, slots=True)
class HFPolicy:
    model: Model
    temperature: float
    max_tokens: int
    """The most tokens of one completion, end token included."""
    cache_bytes: int = 1 << 30
    """Room for keys and values: what has none waits for the next wave."""
    _room: Room = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_room", Room(self.cache_bytes))

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
        chances = _Chances(generator, len(prompts) * completions, self.model.device)
        # Shared prompts stand in one block: those of like length are drawn together.
        order = sorted(range(len(prompts)), key=lambda place: len(prompts[place]))
        needed_bytes = partial(self._needed_bytes, prompts)
        waiting = self._room.waves(order, completions, needed_bytes)
        drawn: dict[int, Rollout] = {}
        while waiting:
            wave = waiting.pop(0)
            rows = wave.rows(completions)
            placed = torch.tensor(rows, device=self.model.device)
            try:
                rollouts = self._drawn(self._growing(wave, prompts), placed, chances)
            except (MemoryError, RuntimeError) as error:
                waiting[:0] = self._room.halve(wave, needed_bytes(wave), error)
                continue
            drawn.update(zip(rows, rollouts, strict=True))
        return [drawn[row] for row in range(len(prompts) * completions)]

    def _growing(self, wave: Wave, prompts: list[list[int]]) -> Shared | Plain:
        asked, completions = [prompts[place] for place in wave.places], len(wave.part)
        if proof_of(self.model.network).objection:
            return Plain(self.model, asked, completions)
        return Shared(self.model, asked, completions, self.max_tokens)

    def _needed_bytes(self, prompts: list[list[int]], wave: Wave) -> int:
        tokens = sum(len(prompts[place]) + len(wave.part) * self.max_tokens for place in wave.places)
        return tokens * max(1, proof_of(self.model.network).cached_bytes)

    def _drawn(self, growing: Shared | Plain, rows: Tensor, chances: "_Chances") -> list[Rollout]:
        model, count = self.model, len(rows)
        logits = growing.first()
        drawn = torch.full((count, self.max_tokens), model.pad_id, device=model.device)
        logprobs = torch.zeros(count, self.max_tokens, device=model.device)
        lengths = torch.full((count,), self.max_tokens, device=model.device)
        running = torch.arange(count, device=model.device)
        ends = torch.tensor(model.end_ids, dtype=torch.long, device=model.device)
        for step in range(self.max_tokens):
            tokens, scores = self._choose(logits, chances.at(step)[rows[running]])
            drawn[running, step], logprobs[running, step] = tokens, scores
            goes_on = ~torch.isin(tokens, ends)
            if not goes_on.all():  # what has ended is computed no further
                lengths[running[~goes_on]] = step + 1
                kept = goes_on.nonzero()[:, 0]
                running, tokens = running[kept], tokens[kept]
                growing.keep(kept)
            if not len(running) or step + 1 == self.max_tokens:
                break
            logits = growing.next(tokens)
        return self._rollouts(drawn, logprobs, lengths, set(running.tolist()))

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


class _Chances:
    """A number for every row at every step, drawn or not: what one row draws hangs on no other."""

    def __init__(self, generator: torch.Generator, rows: int, device: torch.device) -> None:
        self._generator, self._rows, self._device = generator, rows, device
        self._drawn: list[Tensor] = []

    def at(self, step: int) -> Tensor:
        while len(self._drawn) <= step:
            self._drawn.append(torch.rand(self._rows, generator=self._generator, device=self._device))
        return self._drawn[step]


def _drawn_from(probabilities: Tensor, chances: Tensor) -> Tensor:
    """One token a row by one random number a row; torch's multinomial takes one a token of the vocabulary."""
    sums = probabilities.cumsum(-1)
    total = sums[:, -1:]
    below = torch.nextafter(total, torch.zeros_like(total))  # a product may round up to the total itself
    # Where sums are flat the chance is zero: right=True steps over tokens that cannot be drawn.
    return torch.searchsorted(sums, torch.minimum(chances[:, None] * total, below), right=True)[:, 0]
