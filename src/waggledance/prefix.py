"""Prompts computed once: attention over a stream of tokens in which many rollouts continue few prompts.

A stream is one row without padding: all prompts' tokens, then all rollouts'. A rollout's token attends to its
prompt and to itself; a prompt's keys stand once, however many rollouts look at them. transformers takes the
attention function from its registry, so that every architecture that uses it runs this way unchanged.
"""

# pyright: standard

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, cast

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

ATTENTION = "waggledance"
ARGUMENT = "waggledance_stream"


@dataclass(frozen=True, slots=True)
class Rule:
    """What a layer asks of attention beside the scores."""

    scaling: float
    window: int | None
    """How many tokens back it sees; None: all."""
    softcap: float | None


class Attending(Protocol):
    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, rule: Rule, /) -> Tensor:
        """[N, heads, depth] each, of the stream's tokens; out comes the same for the queries."""
        ...


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    _mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **more: Any,
) -> tuple[Tensor, None]:
    stream = cast("Attending", more[ARGUMENT])
    rule = Rule(query.shape[-1] ** -0.5 if scaling is None else scaling, sliding_window, softcap)
    # The scores stay in float32, whatever the products around them are made in.
    with torch.autocast(query.device.type, enabled=False):
        q, k, v = (heads[0].transpose(0, 1).float() for heads in (query, key, value))
        out = stream.attend(module.layer_idx, q, k, v, rule)[None]
    return out.to(value.dtype), None


AttentionInterface.register(ATTENTION, _attention)


@contextmanager
def attending(settings: Any, attention: str = ATTENTION) -> Generator[None]:
    """Inside, the attention of the network with these settings is the one of this file, which must be given a
    stream, or another."""
    before = attention_of(settings)
    settings._attn_implementation = attention
    try:
        yield
    finally:
        settings._attn_implementation = before


def attention_of(settings: Any) -> str:
    return settings._attn_implementation


class _Places:
    """Where the tokens of a segment stand in a padded block, and the other way round."""

    def __init__(self, lengths: Sequence[int], width: int, device: torch.device) -> None:
        length = torch.tensor(lengths, device=device)
        start = length.cumsum(0) - length
        column = torch.arange(width, device=device)
        self.mask = column < length[:, None]
        self.taken = torch.where(self.mask, start[:, None] + column, 0).flatten()
        self.back = self.mask.flatten().nonzero()[:, 0]
        self.full = len(self.back) == self.mask.numel()


class _Spread(torch.autograd.Function):
    """Tokens → a padded block. Backwards everything goes where it came from, once: nothing is added up."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, places: _Places) -> Tensor:
        ctx.places = places
        return tokens.index_select(0, places.taken)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return grads[0].index_select(0, ctx.places.back), None


class _Gather(torch.autograd.Function):
    """A padded block → tokens. Backwards padding gets nothing."""

    @staticmethod
    def forward(ctx: Any, block: Tensor, places: _Places) -> Tensor:
        ctx.places = places
        return block.index_select(0, places.back)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        block = grads[0].index_select(0, ctx.places.taken)
        return block * ctx.places.mask.flatten()[:, None, None], None


class Stream:
    """P prompts of at most S tokens; each continued by at most G rollouts, R in all, of at most T tokens."""

    def __init__(
        self, prompts: Sequence[Sequence[int]], rows: Sequence[Sequence[Sequence[int]]], device: torch.device
    ) -> None:
        """`rows`: every prompt's rollouts."""
        flat = [row for group in rows for row in group]
        self.prompts, self.group = len(prompts), max(map(len, rows), default=0)
        self.lengths = [len(prompt) for prompt in prompts]
        self.width, self.row_width = max(self.lengths), max(map(len, flat), default=0)
        ids = [i for sequence in (*prompts, *flat) for i in sequence]
        positions = [t for prompt in prompts for t in range(len(prompt))]
        positions += [
            len(prompt) + t
            for prompt, group in zip(prompts, rows, strict=True)
            for row in group
            for t in range(len(row))
        ]
        self.ids = torch.tensor(ids, device=device)
        self.positions = torch.tensor(positions, device=device)
        self.device = device
        self.prompt_tokens = sum(self.lengths)
        self._row_lengths = [
            len(row) for group in rows for row in (*group, *[()] * (self.group - len(group)))
        ]

    @cached_property
    def prompt_places(self) -> _Places:
        return _Places(self.lengths, self.width, self.device)

    @cached_property
    def row_places(self) -> _Places:
        return _Places(self._row_lengths, self.row_width, self.device)

    @cached_property
    def length(self) -> Tensor:
        return torch.tensor(self.lengths, device=self.device)

    def attend(self, _layer: int, q: Tensor, k: Tensor, v: Tensor, rule: Rule) -> Tensor:
        first = self.prompt_tokens
        kp, vp = self.prompt_keys(k[:first]), self.prompt_keys(v[:first])
        out = self.attend_prompts(q[:first], kp, vp, rule)
        if q.shape[0] == first:
            return out
        return torch.cat([out, self._attend_rows(q[first:], k[first:], v[first:], kp, vp, rule)])

    def prompt_keys(self, tokens: Tensor) -> Tensor:
        """[P, heads, S, depth]"""
        block = _Spread.apply(tokens, self.prompt_places)
        return cast("Tensor", block).unflatten(0, (self.prompts, self.width)).transpose(1, 2)

    def attend_prompts(self, q: Tensor, kp: Tensor, vp: Tensor, rule: Rule) -> Tensor:
        """Every prompt by itself. Padding stands behind: what a token sees back of itself is no padding."""
        qp, repeats = self.prompt_keys(q), q.shape[1] // kp.shape[1]
        k, v = (heads.repeat_interleave(repeats, 1) if repeats > 1 else heads for heads in (kp, vp))
        if rule.softcap:
            scores = _capped(qp @ k.transpose(2, 3) * rule.scaling, rule.softcap)
            out = (scores + _causal(self.width, rule.window, q)).softmax(-1) @ v
        elif rule.window and rule.window < self.width:
            mask = _causal(self.width, rule.window, q)
            out = scaled_dot_product_attention(qp, k, v, attn_mask=mask, scale=rule.scaling)
        else:
            out = scaled_dot_product_attention(qp, k, v, is_causal=True, scale=rule.scaling)
        return cast("Tensor", _Gather.apply(out.transpose(1, 2).flatten(0, 1), self.prompt_places))

    def _attend_rows(self, q: Tensor, k: Tensor, v: Tensor, kp: Tensor, vp: Tensor, rule: Rule) -> Tensor:
        kv_heads, depth = k.shape[1:]
        shape = (self.prompts, self.group, self.row_width, kv_heads)
        spread = (
            cast("Tensor", _Spread.apply(tokens, self.row_places)) for tokens in (q * rule.scaling, k, v)
        )
        qr, kr, vr = (tokens.reshape(*shape, -1, depth) for tokens in spread)
        out = Continued.apply(
            qr.permute(0, 3, 1, 4, 2, 5).contiguous(),
            kr.squeeze(4).permute(0, 3, 1, 2, 4).contiguous(),
            vr.squeeze(4).permute(0, 3, 1, 2, 4).contiguous(),
            kp.contiguous(),
            vp.contiguous(),
            self._prompt_bias(rule.window, q),
            _causal(self.row_width, rule.window, q),
            rule.softcap,
        )
        block = cast("Tensor", out).permute(0, 2, 4, 1, 3, 5).reshape(-1, q.shape[1], depth)
        return cast("Tensor", _Gather.apply(block, self.row_places))

    def _prompt_bias(self, window: int | None, like: Tensor) -> Tensor | None:
        """What of its prompt a rollout's t-th token sees, [P, 1, 1, 1, 1 or T, S]; None: all of it."""
        seen = self.prompt_places.mask[:, None]
        if window and window < self.width + self.row_width:
            row = torch.arange(self.row_width, device=self.device)[:, None]
            key = torch.arange(self.width, device=self.device)
            seen = seen & (self.length[:, None, None] + row - key < window)
        elif self.prompt_places.full:
            return None
        return bias(seen, like)[:, None, None, None]


class Continued(torch.autograd.Function):
    """Attention of rollouts to their prompt and themselves. Keeps keys and queries, not the scores.

    q [P, heads of keys, G, queries a key's head, T, depth]; k, v [P, heads, G, T, depth]; prompts' [P, heads,
    S, depth].
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        kp: Tensor,
        vp: Tensor,
        prompt_bias: Tensor | None,
        own_bias: Tensor | None,
        softcap: float | None,
    ) -> Tensor:
        to_prompt, own = _scores(q, k, kp, prompt_bias, own_bias, softcap)
        peak = torch.maximum(to_prompt.amax(-1, keepdim=True), own.amax(-1, keepdim=True))
        to_prompt, own = to_prompt.sub_(peak).exp_(), own.sub_(peak).exp_()
        total = to_prompt.sum(-1, keepdim=True) + own.sum(-1, keepdim=True)
        out = (_times_prompt(to_prompt, vp) + _times_own(own, v)).div_(total)
        ctx.save_for_backward(q, k, v, kp, vp, peak + total.log())
        ctx.rest = prompt_bias, own_bias, softcap
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        q, k, v, kp, vp, log_total = ctx.saved_tensors
        prompt_bias, own_bias, softcap = ctx.rest
        grad = grads[0].contiguous()
        to_prompt, own = _scores(q, k, kp, prompt_bias, own_bias, softcap)
        slope_p, slope_o = _slope(to_prompt, softcap), _slope(own, softcap)
        to_prompt, own = to_prompt.sub_(log_total).exp_(), own.sub_(log_total).exp_()
        pull_p, pull_o = _times_prompt(grad, vp.transpose(-1, -2)), _times_own(grad, v.transpose(-1, -2))
        mean = (pull_p * to_prompt).sum(-1, keepdim=True) + (pull_o * own).sum(-1, keepdim=True)
        d_prompt, d_own = pull_p.sub_(mean).mul_(to_prompt), pull_o.sub_(mean).mul_(own)
        if softcap:
            d_prompt, d_own = d_prompt * slope_p, d_own * slope_o
        return (
            _times_prompt(d_prompt, kp) + _times_own(d_own, k),
            _own_sum(d_own, q),
            _own_sum(own, grad),
            _prompt_sum(d_prompt, q),
            _prompt_sum(to_prompt, grad),
            None,
            None,
            None,
        )


def _scores(
    q: Tensor,
    k: Tensor,
    kp: Tensor,
    prompt_bias: Tensor | None,
    own_bias: Tensor | None,
    softcap: float | None,
) -> tuple[Tensor, Tensor]:
    to_prompt, own = _times_prompt(q, kp.transpose(-1, -2)), _times_own(q, k.transpose(-1, -2))
    if softcap:
        to_prompt, own = _capped(to_prompt, softcap), _capped(own, softcap)
    if prompt_bias is not None:
        to_prompt += prompt_bias
    if own_bias is not None:
        own += own_bias
    return to_prompt, own


def _times_prompt(rows: Tensor, prompt: Tensor) -> Tensor:
    """[P, heads, G, a, T, X] times [P, heads, X, Y]: one product for all rollouts of a prompt."""
    return torch.bmm(rows.flatten(2, 4).flatten(0, 1), prompt.flatten(0, 1)).view(
        *rows.shape[:-1], prompt.shape[-1]
    )


def _times_own(rows: Tensor, own: Tensor) -> Tensor:
    """[P, heads, G, a, T, X] times [P, heads, G, X, Y]"""
    return torch.bmm(rows.flatten(3, 4).flatten(0, 2), own.flatten(0, 2)).view(
        *rows.shape[:-1], own.shape[-1]
    )


def _prompt_sum(left: Tensor, right: Tensor) -> Tensor:
    """[P, heads, S, depth]: what reaches a prompt's keys from all of its rollouts."""
    product = torch.bmm(left.flatten(2, 4).flatten(0, 1).transpose(1, 2), right.flatten(2, 4).flatten(0, 1))
    return product.view(*left.shape[:2], *product.shape[1:])


def _own_sum(left: Tensor, right: Tensor) -> Tensor:
    product = torch.bmm(left.flatten(3, 4).flatten(0, 2).transpose(1, 2), right.flatten(3, 4).flatten(0, 2))
    return product.view(*left.shape[:3], *product.shape[1:])


def _capped(scores: Tensor, softcap: float) -> Tensor:
    return (scores / softcap).tanh() * softcap


def _slope(scores: Tensor, softcap: float | None) -> Tensor:
    """Of the cap at capped scores; what is not seen has none."""
    return 1 - (scores / softcap).nan_to_num(neginf=0) ** 2 if softcap else scores


def _causal(width: int, window: int | None, like: Tensor) -> Tensor:
    row = torch.arange(width, device=like.device)[:, None]
    key = torch.arange(width, device=like.device)
    seen = key <= row
    return bias(seen & (row - key < window) if window else seen, like)


def bias(seen: Tensor, like: Tensor) -> Tensor:
    return torch.zeros(seen.shape, dtype=like.dtype, device=like.device).masked_fill_(~seen, -torch.inf)
