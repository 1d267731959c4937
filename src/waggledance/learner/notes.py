"""What a learner noted while it learned from one batch, gathered over its parts and steps."""

# pyright: standard

import torch
from torch import Tensor

from waggledance.learner.batch import Batch
from waggledance.learner.loss import Loss
from waggledance.seams import Lesson

NOTHING = Lesson(groups=0, tokens=0, loss=0.0, grad_norm=0.0, kl=0.0, clipped=0.0)


class Notes:
    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._norms: list[float] = []
        self._losses: list[Tensor] = []
        self._kls: list[Tensor] = []
        self._clipped: list[Tensor] = []
        self._missed: list[Tensor] = []

    def add(self, loss: Loss) -> None:
        """The loss of a batch, or of a part of one."""
        self._losses.append(loss.value.detach())
        self._kls.append(loss.kl)
        self._clipped.append(loss.clipped)
        if loss.missed is not None:
            self._missed.append(loss.missed)

    def stepped(self, norm: float) -> None:
        self._norms.append(norm)

    def lesson(self) -> Lesson:
        """Means over the steps taken; KL and clipping over the batch's rollouts too."""
        steps, rows = len(self._norms), len(self._batch.owner_R)
        return Lesson(
            groups=int(self._batch.owner_R[-1]) + 1,
            tokens=self._batch.tokens,
            loss=float(torch.stack(self._losses).sum() / steps),
            grad_norm=sum(self._norms) / steps,
            kl=float(torch.stack(self._kls).sum() / (steps * rows)),
            clipped=float(torch.stack(self._clipped).sum() / (steps * rows)),
            value_loss=float(torch.stack(self._missed).sum() / steps) if self._missed else 0.0,
        )
