"""Keys and values while rollouts grow: prompts' stand once, rollouts' have their room from the start.

Nothing is moved as tokens come. Rows that ended stay where they are, uncomputed, until half of the room is
theirs; then what goes on is moved together.
"""

# pyright: standard

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from waggledance.prefix import Continued, Rule, Stream, bias

Keys = tuple[Tensor, Tensor]


class Cache:
    """P prompts with G rollouts each of at most `capacity` tokens. A slot is a rollout's place, p * G + g."""

    def __init__(
        self, prompts: Sequence[Sequence[int]], group: int, capacity: int, device: torch.device
    ) -> None:
        self.stream = Stream(prompts, [()] * len(prompts), device)
        self.live = torch.arange(len(prompts) * group, device=device)
        """The slots that go on, in the order of the rows that are stepped."""
        self._lengths = self.stream.length
        self._group, self._capacity = group, capacity
        self._prompts: dict[int, Keys] = {}
        self._own: dict[int, Keys] = {}
        self._biases: dict[int | None, tuple[Tensor | None, Tensor | None]] = {}
        self._grown = -1
        """Tokens that every rollout that goes on has behind it; -1 until the prompts are in."""

    @property
    def bytes(self) -> int:
        return sum(keys.nbytes for pair in (*self._prompts.values(), *self._own.values()) for keys in pair)

    @property
    def positions(self) -> Tensor:
        return self._lengths[self.live // self._group] + self._grown

    def advance(self) -> None:
        """What was computed last is in; the next pass brings every row's next token."""
        self._grown += 1
        self._biases.clear()

    def keep(self, kept: Tensor) -> None:
        """Of the rows that were stepped last, these go on."""
        self.live = self.live[kept]
        if 2 * len(self.live) <= len(self._lengths) * self._group and len(self.live):
            self._move_together()

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, rule: Rule) -> Tensor:
        if self._grown < 0:
            kp, vp = (self.stream.prompt_keys(tokens).contiguous() for tokens in (k, v))
            self._prompts[layer] = kp, vp
            return self.stream.attend_prompts(q, kp, vp, rule)
        prompts, group, (heads, depth) = len(self._lengths), self._group, k.shape[1:]
        own_k, own_v = self._written(layer, k, v)
        block = self._in_slots(q * rule.scaling).view(prompts, group, heads, -1, 1, depth)
        prompt_bias, own_bias = self._bias(rule.window, q)
        out = Continued.apply(
            block.transpose(1, 2).contiguous(),
            own_k,
            own_v,
            *self._prompts[layer],
            prompt_bias,
            own_bias,
            rule.softcap,
        )
        rows = cast("Tensor", out).transpose(1, 2).reshape(prompts * group, q.shape[1], depth)
        return rows if self._full else rows.index_select(0, self.live)

    @property
    def _full(self) -> bool:
        return len(self.live) == len(self._lengths) * self._group

    def _in_slots(self, rows: Tensor) -> Tensor:
        if self._full:
            return rows
        slots = rows.new_zeros(len(self._lengths) * self._group, *rows.shape[1:])
        return slots.index_copy_(0, self.live, rows)

    def _written(self, layer: int, k: Tensor, v: Tensor) -> Keys:
        """The rollouts' keys and values, the newest token's among them: [P, heads, G, tokens, depth]."""
        if layer not in self._own:
            shape = (len(self._lengths), k.shape[1], self._group, self._capacity, k.shape[2])
            self._own[layer] = k.new_empty(shape), v.new_empty(shape)
        p, g = self.live // self._group, self.live % self._group
        for room, tokens in zip(self._own[layer], (k, v), strict=True):
            room.transpose(1, 2)[p, g, :, self._grown] = tokens
        own_k, own_v = self._own[layer]
        return own_k[..., : self._grown + 1, :], own_v[..., : self._grown + 1, :]

    def _bias(self, window: int | None, like: Tensor) -> tuple[Tensor | None, Tensor | None]:
        if window not in self._biases:
            key = torch.arange(self.stream.width, device=like.device)
            seen = key < self._lengths[:, None]
            own_bias = None
            if window and window < self.stream.width + self._grown + 1:
                seen = seen & (self._lengths[:, None] + self._grown - key < window)
                own_bias = bias(
                    self._grown - torch.arange(self._grown + 1, device=like.device) < window, like
                )
            everything = bool(seen.all())
            prompt_bias = None if everything else bias(seen, like)[:, None, None, None, None]
            self._biases[window] = prompt_bias, own_bias
        return self._biases[window]

    def _move_together(self) -> None:
        """Groups that ended are left out; the others keep room for what goes on in the fullest of them."""
        group_of = self.live // self._group
        alive, place = group_of.unique(return_inverse=True)  # sorted, as the live slots are
        counts = place.bincount()
        room = int(counts.max())
        rank = torch.arange(len(self.live), device=self.live.device) - (counts.cumsum(0) - counts)[place]
        source = self.live.new_zeros(len(alive), room)
        source[place, rank] = self.live % self._group
        for layer, own in self._own.items():
            self._own[layer] = cast("Keys", tuple(self._moved(keys, alive, source) for keys in own))
            self._prompts[layer] = cast("Keys", tuple(keys[alive] for keys in self._prompts[layer]))
        self._lengths, self._group = self._lengths[alive], room
        self._biases.clear()
        self.live = place * room + rank

    def _moved(self, keys: Tensor, alive: Tensor, source: Tensor) -> Tensor:
        moved = keys.new_empty(*source.shape[:1], keys.shape[1], source.shape[1], *keys.shape[3:])
        written = keys[..., : self._grown, :].transpose(1, 2)[alive[:, None], source]
        moved[..., : self._grown, :] = written.transpose(1, 2)
        return moved
