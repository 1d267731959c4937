"""What a learner noted while it learned from one batch, gathered over its parts and steps."""

# pyright: standard

import math
from dataclasses import replace

import torch
from torch import Tensor

from waggledance.learner.batch import Batch
from waggledance.learner.loss import Loss
from waggledance.seams import Lesson

NOTHING = Lesson(groups=0, tokens=0, loss=0.0, grad_norm=0.0, kl=0.0, clipped=0.0)


class Notes:
    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._waiting: list[Loss] = []
        self._skipped = 0
        self._norms: list[float] = []
        self._losses: list[Tensor] = []
        self._kls: list[Tensor] = []
        self._clipped: list[Tensor] = []
        self._missed: list[Tensor] = []

    def add(self, loss: Loss) -> None:
        """The loss of a batch, or of a part of one."""
        self._waiting.append(loss)

    def stepped(self, norm: float) -> None:
        """With all that was added since the last step. A step that was skipped leaves no number behind."""
        losses, self._waiting = self._waiting, []
        if not math.isfinite(norm):
            self._skipped += 1
            return
        self._norms.append(norm)
        self._losses += [loss.value.detach() for loss in losses]
        self._kls += [loss.kl for loss in losses]
        self._clipped += [loss.clipped for loss in losses]
        self._missed += [loss.missed for loss in losses if loss.missed is not None]

    def lesson(self) -> Lesson:
        """Means over the steps taken; KL and clipping over the batch's rollouts too."""
        steps, rows = len(self._norms), len(self._batch.owner_R)
        if not steps:
            return replace(NOTHING, skipped=self._skipped)
        return Lesson(
            groups=int(self._batch.owner_R[-1]) + 1,
            tokens=self._batch.tokens,
            loss=float(torch.stack(self._losses).sum() / steps),
            grad_norm=sum(self._norms) / steps,
            kl=float(torch.stack(self._kls).sum() / (steps * rows)),
            clipped=float(torch.stack(self._clipped).sum() / (steps * rows)),
            value_loss=float(torch.stack(self._missed).sum() / steps) if self._missed else 0.0,
            skipped=self._skipped,
        )
