"""A stack: nodes of one shape that answer and learn together, in batched calls.

Tasks and scored groups of all nodes come in, rollouts and lessons of each go out, and they are those of
`policy/hf.py` and `learner/grpo.py` to rounding: the same draws, the same loss, the same step for every node
by itself. It must not know which of its nodes hear each other.
"""

# pyright: standard

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from waggledance.errors import DivergedError
from waggledance.lab.lexicon import Lexicon
from waggledance.lab.llama import Llamas, Prompts, Weights, shape_of, state_of, weights_of
from waggledance.lab.lot import Losses, Lot, LotBatch, make_lot, padded_prompts
from waggledance.lab.sheet import Sheet
from waggledance.lab.thinkers import Asked
from waggledance.learner.loss import Clip
from waggledance.model import Model
from waggledance.rollout import Rollout, ScoredGroup
from waggledance.seams import Lesson

BETAS, EPSILON = (0.9, 0.999), 1e-8
"""Adam's, as torch has them."""

One = TypeVar("One")


@dataclass(frozen=True, slots=True)
class StackSettings:
    temperature: float
    max_tokens: int
    learning_rate: float
    clip: Clip
    kl_weight: float
    max_grad_norm: float
    epochs: int
    max_skipped: int
    """Steps in a row that may be left out because the gradient is not finite."""
    rows_at_once: int
    """Completions in one batched call: bounds the memory."""


class Stack:
    def __init__(self, models: Sequence[Model], settings: StackSettings, device: str) -> None:
        """One model a node to start from; where they are the same one, it is kept once."""
        self.model = models[0]
        self.shape = shape_of(self.model)
        self.settings = settings
        self.device = torch.device(device)
        self._lexicon = Lexicon(self.model)
        starts = {id(model): weights_of(model.network.state_dict(), self.shape) for model in models}
        each = [starts[id(model)] for model in models]
        kept = each[:1] if len(starts) == 1 else each
        self._start: Weights = {name: _stacked(kept, name, self.device) for name in each[0]}
        self.weights: Weights = {name: _stacked(each, name, self.device) for name in each[0]}
        self._means = {name: torch.zeros_like(weight) for name, weight in self.weights.items()}
        self._squares = {name: torch.zeros_like(weight) for name, weight in self.weights.items()}
        self._steps = torch.zeros(len(models), device=self.device)
        self._skipped = torch.zeros(len(models), dtype=torch.long, device=self.device)

    def state(self, node: int) -> dict[str, Tensor]:
        """A node's weights under the names of its network."""
        return state_of(self.weights, self.shape, node)

    def answer(self, asked: Sequence[Asked]) -> list[list[tuple[Rollout, ...]]]:
        """For each that asks, its rollouts by task."""
        answers: list[list[tuple[Rollout, ...]]] = [[] for _ in asked]
        busy = sorted((k for k, one in enumerate(asked) if one.tasks), key=lambda k: -_rows(asked[k]))
        for part in _parts(busy, lambda k: _rows(asked[k]), self.settings.rows_at_once):
            for place, rollouts in zip(part, self._answer([asked[k] for k in part]), strict=True):
                answers[place] = rollouts
        return answers

    def learn(self, batches: Mapping[int, Sequence[ScoredGroup]]) -> dict[int, Lesson]:
        """One batch for each node that learns."""
        nothing = Lesson(groups=0, tokens=0, loss=0.0, grad_norm=0.0, kl=0.0, clipped=0.0)
        lessons = dict.fromkeys(batches, nothing)
        lots = [
            make_lot(node, groups, self._lexicon, self.settings.max_tokens, self.model.window)
            for node, groups in batches.items()
        ]
        busy = sorted((lot for lot in lots if lot.groups), key=lambda lot: -len(lot.groups))
        for part in _parts(busy, lambda lot: lot.most_rows, self.settings.rows_at_once):
            lessons |= self._learn(part)
        return lessons

    @torch.no_grad()
    def _answer(self, asked: Sequence[Asked]) -> list[list[tuple[Rollout, ...]]]:
        completions = asked[0].completions
        assert all(one.completions == completions for one in asked), "one stack, one number of completions"
        ids, mask = padded_prompts(
            [[self._lexicon.prompt(task) for task in one.tasks] for one in asked],
            self.model.pad_id,
            self.device,
        )
        llamas = self._llamas([one.node for one in asked])
        sheet = Sheet(asked, self.settings.max_tokens, self.model.end_ids, self.device)
        last, kept = llamas.prompts(ids, mask)
        prompts = Prompts(kept, mask, completions, sheet.limit)
        lengths = mask.sum(-1).repeat_interleave(completions, 1)
        logits = sheet.going.packed(llamas.logits(last).repeat_interleave(completions, 1))
        while sheet.write(logits, self.settings.temperature):
            at = sheet.written - 1
            states = llamas.step(sheet.newest, sheet.going.packed(lengths) + at, sheet.going, at, prompts)
            logits = llamas.logits(states)
        return self._rollouts(asked, completions, sheet)

    def _rollouts(
        self, asked: Sequence[Asked], completions: int, sheet: Sheet
    ) -> list[list[tuple[Rollout, ...]]]:
        told = zip(
            asked,
            sheet.tokens.tolist(),
            sheet.mean_logprobs.tolist(),
            sheet.lengths.tolist(),
            sheet.finished.tolist(),
            strict=True,
        )
        answers: list[list[tuple[Rollout, ...]]] = []
        for one, tokens, means, lengths, finished in told:
            every: list[Rollout] = []
            for row in range(_rows(one)):
                ids = tuple(tokens[row][: lengths[row]])
                text = self._lexicon.text(ids)
                every.append(Rollout(text, finished[row], lengths[row], means[row], ids))
            answers.append([tuple(every[k : k + completions]) for k in range(0, len(every), completions)])
        return answers

    def _learn(self, lots: Sequence[Lot]) -> dict[int, Lesson]:
        settings, nodes = self.settings, torch.tensor([lot.node for lot in lots], device=self.device)
        llamas = Llamas(self.shape, {name: w[nodes].requires_grad_() for name, w in self.weights.items()})
        batch = LotBatch(lots, self.model, settings.temperature, self.device)
        reference = self._reference_logprobs(batch, nodes) if settings.kl_weight else None
        old: Tensor | None = None
        losses: list[Losses] = []
        norms: list[Tensor] = []
        for _ in range(settings.epochs):
            new = batch.logprobs(llamas)
            old = new.detach() if old is None else old
            losses.append(batch.losses(new, old, reference, settings.clip, settings.kl_weight))
            losses[-1].value.sum().backward()
            norms.append(self._step(llamas, nodes))
        told = zip(
            lots,
            batch.tokens.tolist(),
            _mean([loss.value for loss in losses]),
            _mean(norms),
            _mean([loss.kl for loss in losses]),
            _mean([loss.clipped for loss in losses]),
            strict=True,
        )
        return {
            lot.node: Lesson(len(lot.groups), int(tokens), loss, norm, kl, clipped)
            for lot, tokens, loss, norm, kl, clipped in told
        }

    @torch.no_grad()
    def _reference_logprobs(self, batch: LotBatch, nodes: Tensor) -> Tensor:
        """Under the weights that the nodes started with."""
        same = len(self._start["norm"]) == 1
        places = torch.zeros_like(nodes) if same else nodes
        return batch.logprobs(Llamas(self.shape, {name: w[places] for name, w in self._start.items()}))

    @torch.no_grad()
    def _step(self, llamas: Llamas, nodes: Tensor) -> Tensor:
        """Adam's, for every node with its own norm and its own count of steps; the norms."""
        norms = _norms(llamas.weights)
        sound = torch.isfinite(norms)
        self._count_skipped(nodes, sound)
        shrink = (self.settings.max_grad_norm / (norms + 1e-6)).clamp(max=1.0)
        self._steps[nodes] += sound.float()
        steps = self._steps[nodes].clamp(min=1)
        first, second = 1 - BETAS[0] ** steps, (1 - BETAS[1] ** steps).sqrt()
        for name, weight in llamas.weights.items():
            each = (-1, *[1] * (weight.dim() - 1))
            assert weight.grad is not None
            gradient = weight.grad * shrink.view(each)
            mean = self._means[name][nodes].lerp_(gradient, 1 - BETAS[0])
            square = self._squares[name][nodes].mul_(BETAS[1])
            square.addcmul_(gradient, gradient, value=1 - BETAS[1])
            scale = (square.sqrt() / second.view(each)).add_(EPSILON)
            weight -= (self.settings.learning_rate / first).view(each) * mean / scale
            weight.grad = None
            made = nodes[sound]
            self._means[name][made], self._squares[name][made] = mean[sound], square[sound]
            self.weights[name][made] = weight[sound]
            weight.copy_(self.weights[name][nodes])
        return norms

    def _count_skipped(self, nodes: Tensor, sound: Tensor) -> None:
        """A step that would destroy a node's model is not made; too many in a row end the experiment."""
        self._skipped[nodes] = (self._skipped[nodes] + 1) * ~sound
        most = int(self._skipped.max())
        if most > self.settings.max_skipped:
            raise DivergedError(
                f"a node's gradient was not finite in {most} steps in a row and none was made; "
                f"learner.max_skipped allows {self.settings.max_skipped}; lower learner.learning_rate "
                f"(now {self.settings.learning_rate})"
            )

    def _llamas(self, nodes: Sequence[int]) -> Llamas:
        """Of neighbours a view, of others a copy."""
        first, last = nodes[0], nodes[-1] + 1
        if list(nodes) == list(range(first, last)):
            return Llamas(self.shape, {name: w[first:last] for name, w in self.weights.items()})
        index = torch.tensor(nodes, device=self.device)
        return Llamas(self.shape, {name: w[index] for name, w in self.weights.items()})


def _rows(asked: Asked) -> int:
    return len(asked.tasks) * asked.completions


def _stacked(each: Sequence[Weights], name: str, device: torch.device) -> Tensor:
    return torch.stack([weights[name].detach() for weights in each]).to(device)


def _norms(weights: Weights) -> Tensor:
    squares = [weight.grad.pow(2).flatten(1).sum(1) for weight in weights.values() if weight.grad is not None]
    return torch.stack(squares).sum(0).sqrt()


def _mean(values: Sequence[Tensor]) -> list[float]:
    return torch.stack([value.detach() for value in values]).mean(0).tolist()


def _parts(ordered: Iterable[One], rows: Callable[[One], int], room: int) -> Iterator[list[One]]:
    """As many at once as fit, each as wide as the widest, which comes first."""
    part: list[One] = []
    for one in ordered:
        if part and (len(part) + 1) * rows(part[0]) > room:
            yield part
            part = []
        part.append(one)
    if part:
        yield part
