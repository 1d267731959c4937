"""Learner `grpo` and its variants: group-relative policy optimisation.

Scored groups come in, the model's weights move, a lesson goes out. It cannot tell own groups from foreign
ones but by the weight it is handed; without an informative group it takes no step at all.
"""

# pyright: standard

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from waggledance.forward import recompute_layers
from waggledance.learner import keeping
from waggledance.learner.batch import Batch, make_batch
from waggledance.learner.logprobs import token_logprobs
from waggledance.learner.loss import Clip, Loss, policy_loss
from waggledance.learner.notes import NOTHING, Notes
from waggledance.learner.optimiser import Optimiser
from waggledance.learner.parts import Part, Room
from waggledance.learner.reference import Reference
from waggledance.learner.variant import variant_named
from waggledance.model import Model
from waggledance.rollout import ScoredGroup
from waggledance.seams import Lesson


@dataclass(frozen=True, slots=True)
class GRPOSettings:
    learning_rate: float
    clip: Clip
    kl_weight: float
    max_grad_norm: float
    epochs: int
    """Steps taken on one batch: from the second on the clipped ratio matters."""
    temperature: float
    """The policy's, so that ratios compare what was sampled from."""
    max_tokens: int
    variant: str = "grpo"
    memory_bytes: int = 512 << 20
    """For what a pass keeps for the backward pass."""
    recompute: bool = False
    """Keep layers' inputs alone."""
    max_skipped: int = 5


class GRPO:
    def __init__(self, model: Model, settings: GRPOSettings) -> None:
        self._model = model
        self._settings = settings
        self._variant = variant_named(settings.variant, settings.max_tokens)
        weights = [weight for weight in model.network.parameters() if weight.requires_grad]
        self._optimiser = Optimiser(
            weights, settings.learning_rate, settings.max_grad_norm, max_skipped=settings.max_skipped
        )
        if settings.recompute:
            recompute_layers(model.network)
        self._room = Room(model.network, settings.memory_bytes)
        self._reference = Reference(model.network, settings.temperature) if settings.kl_weight > 0 else None

    def learn(self, groups: Sequence[ScoredGroup]) -> Lesson:
        batch = make_batch(self._model, groups, self._settings.max_tokens, self._variant.credit)
        if batch is None:
            return NOTHING
        notes = Notes(batch)
        old: Tensor | None = None
        reference: Tensor | None = None
        for _ in range(self._settings.epochs):
            new, reference, losses = self._gradients(batch, old, reference)
            old = new if old is None else old
            for loss in losses:
                notes.add(loss)
            notes.stepped(self._optimiser.step())
        return notes.lesson()

    def kept(self) -> Mapping[str, Tensor]:
        return keeping.kept(keeping.trained(self._model.network), self._optimiser.adam)

    def restore(self, kept: Mapping[str, Tensor]) -> None:
        keeping.restore(keeping.trained(self._model.network), self._optimiser.adam, kept)

    def _gradients(
        self, batch: Batch, old: Tensor | None, reference: Tensor | None
    ) -> tuple[Tensor, Tensor | None, list[Loss]]:
        """Of the whole batch, part by part; without room for a part, again with smaller ones."""
        while True:
            self._optimiser.clear()
            try:
                told = [self._part(part, old, reference) for part in self._room.parts(batch)]
            except (MemoryError, RuntimeError) as error:
                self._room.halve(error)
                continue
            now, pulls, losses = zip(*told, strict=True)
            return torch.cat(now), None if pulls[0] is None else torch.cat(pulls), list(losses)

    def _part(
        self, part: Part, old: Tensor | None, reference: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Loss]:
        rows, batch = part.rows, part.batch
        pull = None if reference is None else reference[rows]
        if self._reference and pull is None:
            pull = self._reference.logprobs(batch)
        new = token_logprobs(self._model.network, batch, self._settings.temperature)
        now = new.detach()
        loss = self._loss(new, now if old is None else old[rows], pull, batch)
        loss.value.backward()
        return now, pull, replace(loss, value=loss.value.detach())

    def _loss(self, new: Tensor, old: Tensor, reference: Tensor | None, batch: Batch) -> Loss:
        clip, kl_weight = self._settings.clip, self._settings.kl_weight
        return policy_loss(new, old, reference, batch, clip, kl_weight, self._variant)
