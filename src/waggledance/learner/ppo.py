"""Learner `ppo`: proximal policy optimisation, with a value head over the policy's own last states.

Scored groups come in, the model's weights move, a lesson goes out. What was to be expected is told by the
value head, token by token, not by the group: a group of one teaches, and one whose rewards are all equal.
The head learns from the policy's states and leaves them as they are.
"""

# pyright: standard

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from waggledance.forward import recompute_layers
from waggledance.learner import keeping
from waggledance.learner.advantage import generalised_advantages
from waggledance.learner.batch import Batch, make_batch
from waggledance.learner.credit import as_rewarded
from waggledance.learner.logprobs import token_logprobs_and_states
from waggledance.learner.loss import Clip, Loss, policy_loss, value_loss
from waggledance.learner.notes import NOTHING, Notes
from waggledance.learner.optimiser import Optimiser
from waggledance.learner.parts import Part, Room
from waggledance.learner.reference import Reference
from waggledance.model import Model
from waggledance.rollout import ScoredGroup
from waggledance.seams import Lesson


@dataclass(frozen=True, slots=True)
class PPOSettings:
    learning_rate: float
    value_learning_rate: float
    clip: Clip
    kl_weight: float
    max_grad_norm: float
    epochs: int
    """Steps taken on one batch: from the second on the clipped ratio matters."""
    discount: float
    trace: float
    temperature: float
    """The policy's, so that ratios compare what was sampled from."""
    max_tokens: int
    memory_bytes: int = 512 << 20
    """For what a pass keeps for the backward pass."""
    recompute: bool = False
    """Keep layers' inputs alone."""
    max_skipped: int = 5


@dataclass(frozen=True, slots=True)
class Past:
    """What a part of a batch looked like before the first step on it."""

    logprobs_RT: Tensor
    reference_RT: Tensor | None
    advantages_RT: Tensor
    returns_RT: Tensor

    def part(self, rows: slice) -> "Past":
        pull = None if self.reference_RT is None else self.reference_RT[rows]
        return Past(self.logprobs_RT[rows], pull, self.advantages_RT[rows], self.returns_RT[rows])


def _joined(parts: Sequence[Past]) -> Past:
    pulls = [part.reference_RT for part in parts if part.reference_RT is not None]
    return Past(
        torch.cat([part.logprobs_RT for part in parts]),
        torch.cat(pulls) if pulls else None,
        torch.cat([part.advantages_RT for part in parts]),
        torch.cat([part.returns_RT for part in parts]),
    )


def value_head(model: Model) -> torch.nn.Linear:
    """Expects nothing yet: the first step is plain REINFORCE."""
    head = torch.nn.Linear(model.network.config.get_text_config().hidden_size, 1, device=model.device)
    torch.nn.init.zeros_(head.weight)
    torch.nn.init.zeros_(head.bias)
    return head


def expected(head: torch.nn.Linear, states_RTH: Tensor) -> Tensor:
    """[R, T]. Scaled so that a step of Adam moves an expectation by about its learning rate, however wide
    the model is."""
    even_RTH = torch.nn.functional.layer_norm(states_RTH.float(), states_RTH.shape[-1:])
    return head(even_RTH / head.in_features)[..., 0]


class PPO:
    def __init__(self, model: Model, settings: PPOSettings) -> None:
        self._model = model
        self._settings = settings
        self._head = value_head(model)
        self._optimiser = Optimiser(
            [weight for weight in model.network.parameters() if weight.requires_grad],
            settings.learning_rate,
            settings.max_grad_norm,
            apart=list(self._head.parameters()),
            apart_learning_rate=settings.value_learning_rate,
            max_skipped=settings.max_skipped,
        )
        if settings.recompute:
            recompute_layers(model.network)
        self._room = Room(model.network, settings.memory_bytes)
        self._reference = Reference(model.network, settings.temperature) if settings.kl_weight > 0 else None

    def learn(self, groups: Sequence[ScoredGroup]) -> Lesson:
        batch = make_batch(self._model, groups, self._settings.max_tokens, as_rewarded, take_equal=True)
        if batch is None:
            return NOTHING
        notes = Notes(batch)
        past: Past | None = None
        for _ in range(self._settings.epochs):
            past, losses = self._gradients(batch, past)
            for loss in losses:
                notes.add(loss)
            notes.stepped(self._optimiser.step())
        return notes.lesson()

    def kept(self) -> Mapping[str, Tensor]:
        return keeping.kept(self._moved(), self._optimiser.adam)

    def restore(self, kept: Mapping[str, Tensor]) -> None:
        keeping.restore(self._moved(), self._optimiser.adam, kept)

    def _moved(self) -> dict[str, torch.nn.Parameter]:
        head = {f"value_head.{name}": weight for name, weight in self._head.named_parameters()}
        return {**keeping.trained(self._model.network), **head}

    def _gradients(self, batch: Batch, past: Past | None) -> tuple[Past, list[Loss]]:
        """Of the whole batch, part by part; without room for a part, again with smaller ones."""
        while True:
            self._optimiser.clear()
            try:
                told = [self._part(part, past) for part in self._room.parts(batch)]
            except (MemoryError, RuntimeError) as error:
                self._room.halve(error)
                continue
            return past or _joined([then for then, _ in told]), [loss for _, loss in told]

    def _part(self, part: Part, past: Past | None) -> tuple[Past, Loss]:
        batch = part.batch
        logprobs, states = token_logprobs_and_states(self._model.network, batch, self._settings.temperature)
        values = expected(self._head, states.detach())
        then = past.part(part.rows) if past else self._past(logprobs.detach(), values.detach(), batch)
        loss = self._loss(logprobs, values, then, batch)
        loss.value.backward()
        return then, replace(loss, value=loss.value.detach())

    def _past(self, logprobs_RT: Tensor, values_RT: Tensor, batch: Batch) -> Past:
        discount, trace = self._settings.discount, self._settings.trace
        advantages = generalised_advantages(batch.credit_R, values_RT, batch.mask_RT, discount, trace)
        reference = self._reference.logprobs(batch) if self._reference else None
        return Past(logprobs_RT, reference, advantages, advantages + values_RT)

    def _loss(self, logprobs_RT: Tensor, values_RT: Tensor, past: Past, batch: Batch) -> Loss:
        policy = policy_loss(
            logprobs_RT,
            past.logprobs_RT,
            past.reference_RT,
            batch,
            self._settings.clip,
            self._settings.kl_weight,
            credit_RT=past.advantages_RT,
        )
        missed = value_loss(values_RT, past.returns_RT, batch)
        return replace(policy, value=policy.value + missed, missed=missed.detach())
