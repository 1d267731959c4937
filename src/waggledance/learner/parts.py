"""A batch in parts that fit into memory: cut by tokens, not by rows, and between groups where that goes.

Losses and gradients add up over parts, so parts change nothing but memory. What does not fit after all is
tried again in parts of half the size.
"""

# pyright: standard

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from transformers import PreTrainedModel

from waggledance.errors import lacks_memory
from waggledance.forward import proof_of
from waggledance.learner.batch import Batch

FEWEST_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Part:
    rows: slice
    batch: Batch


class Room:
    """How many tokens go through the network at a time."""

    def __init__(self, network: PreTrainedModel, memory_bytes: int) -> None:
        self._shares = not proof_of(network).objection
        self.tokens = max(FEWEST_TOKENS, memory_bytes // max(1, proof_of(network).kept_bytes))

    def parts(self, batch: Batch) -> list[Part]:
        ends = [0, *self._ends(batch)]
        return [_part(batch, slice(*pair)) for pair in pairwise(ends)]

    def halve(self, error: BaseException) -> None:
        """Where memory was the trouble and there is something to halve; any other error goes on its way."""
        if not lacks_memory(error) or self.tokens <= FEWEST_TOKENS:
            raise error
        self.tokens = max(FEWEST_TOKENS, self.tokens // 2)

    def _ends(self, batch: Batch) -> Iterator[int]:
        """The row after each part's last one."""
        prompts = batch.prompt_mask_PS.sum(1).tolist()
        lengths = batch.mask_RT.sum(1).int().tolist()
        owners = batch.owner_R.tolist()
        whole = [prompts[owner] for owner in range(len(prompts))]
        for owner, length in zip(owners, lengths, strict=True):
            whole[owner] += length
        used, before = 0, -1
        for row, (owner, length) in enumerate(zip(owners, lengths, strict=True)):
            new = owner != before or not self._shares
            needed = length + (prompts[owner] if new else 0)
            # A group that fits as a whole, but not here any more, begins the next part.
            cut = used + (whole[owner] if owner != before and whole[owner] <= self.tokens else needed)
            if used and cut > self.tokens:
                yield row
                used, needed = 0, length + prompts[owner]
            used += needed
            before = owner
        yield len(owners)


def _part(batch: Batch, rows: slice) -> Part:
    owner = batch.owner_R[rows]
    first, last = int(owner[0]), int(owner[-1]) + 1
    return Part(
        rows,
        replace(
            batch,
            prompt_ids_PS=batch.prompt_ids_PS[first:last],
            prompt_mask_PS=batch.prompt_mask_PS[first:last],
            ids_RT=batch.ids_RT[rows],
            mask_RT=batch.mask_RT[rows],
            owner_R=owner - first,
            credit_R=batch.credit_R[rows],
            weight_R=batch.weight_R[rows],
            author_R=None if batch.author_R is None else batch.author_R[rows],
        ),
    )
