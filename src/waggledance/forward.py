"""A network's pass over a stream: hidden states, and from them log-probabilities a slice at a time.

Only a network that was proven takes this way: on a toy input it must give what its plain pass over padded
sequences gives. Others keep to the plain way, and it is said why.
"""

# pyright: standard

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor
from transformers import PreTrainedModel

from waggledance import recompute
from waggledance.cache import Cache
from waggledance.errors import ModelError
from waggledance.kernels import product
from waggledance.prefix import ARGUMENT, Attending, Stream, attending

SLICE_BYTES = 64 << 20
"""So much of the vocabulary's scores stands in memory at a time."""
TOLERANCE = 1e-3
"""How far a proven log-probability may be from the plain one: float32's rounding in a deep network."""
KEPT_AS = "waggledance_proof"
HALVED = "waggledance_bfloat16"
RECOMPUTED = "waggledance_recomputed"


@dataclass(frozen=True, slots=True)
class Proof:
    """Whether a network can share prompts, and what a pass takes of memory."""

    objection: str
    """Why it cannot; empty: it can."""
    kept_bytes: int = 0
    """Kept for the backward pass, a token."""
    cached_bytes: int = 0
    """Keys and values of a token."""


def proof_of(network: PreTrainedModel) -> Proof:
    """Found on first use, then kept with the network and its copies."""
    bare = bare_network(network)
    proof = getattr(bare, KEPT_AS, None)
    if proof is None:
        proof = _prove(bare)
        setattr(bare, KEPT_AS, proof)
    return cast("Proof", proof)


def bare_network(network: Any) -> Any:
    """Without what peft wraps around it: its adapters lie within."""
    return network.get_base_model() if hasattr(network, "get_base_model") else network


def halve_products(network: PreTrainedModel) -> None:
    """From now on in bfloat16: products only, weights and sums stay in float32. Proven before, in float32."""
    proof_of(network)
    setattr(bare_network(network), HALVED, True)


def products_of(network: PreTrainedModel) -> torch.autocast:
    """What a pass is made in."""
    bare = bare_network(network)
    return torch.autocast(bare.device.type, torch.bfloat16, enabled=getattr(bare, HALVED, False))


def recompute_layers(network: PreTrainedModel) -> None:
    """From now on every layer is computed again in the backward pass and keeps its input alone."""
    bare, proof = bare_network(network), proof_of(network)
    if getattr(bare, RECOMPUTED, False):
        return
    layers = recompute.install(bare)
    if not layers:
        raise ModelError(
            f"learner.recompute: a {type(bare).__name__} has no layers that can be computed again; "
            "leave it out and lower learner.memory_mb"
        )
    setattr(bare, RECOMPUTED, True)
    if not proof.objection:
        inputs = _passed(bare)[1]
        # In the backward pass one layer at a time stands there whole.
        kept = inputs + max(0, proof.kept_bytes - inputs) // layers
        setattr(bare, KEPT_AS, replace(proof, kept_bytes=kept))


def hidden_states(network: PreTrainedModel, ids: Tensor, positions: Tensor, stream: Attending) -> Tensor:
    """What stands before the head, a line a token."""
    bare = bare_network(network)
    with attending(bare.config), products_of(bare):
        return bare.base_model(
            input_ids=ids[None], position_ids=positions[None], use_cache=False, **{ARGUMENT: stream}
        ).last_hidden_state[0]


def next_logits(network: PreTrainedModel, hidden: Tensor) -> Tensor:
    head = _head(bare_network(network))
    with torch.no_grad(), products_of(network):
        return head.logits(hidden)


def taken_logprobs(network: PreTrainedModel, hidden: Tensor, ids: Tensor, temperature: float) -> Tensor:
    """Log-probability of the token that follows each line of hidden states."""
    head = _head(bare_network(network))
    with products_of(network):
        return cast("Tensor", _Taken.apply(hidden, head.weight, ids, head, temperature))


@dataclass(frozen=True, slots=True)
class _Head:
    weight: Tensor
    bias: Tensor | None
    softcap: float | None

    def raw(self, hidden: Tensor) -> Tensor:
        weight, bias = self.weight, self.bias
        if torch.is_autocast_enabled(hidden.device.type):
            return torch.nn.functional.linear(hidden, weight, bias).float()
        return product(hidden, weight, bias)

    def logits(self, hidden: Tensor) -> Tensor:
        raw = self.raw(hidden)
        return raw.div_(self.softcap).tanh_().mul_(self.softcap) if self.softcap else raw


def _head(bare: Any) -> _Head:
    linear = bare.get_output_embeddings()
    softcap = getattr(bare.config.get_text_config(), "final_logit_softcapping", None)
    return _Head(linear.weight, linear.bias, softcap)


class _Taken(torch.autograd.Function):
    """Head and softmax in slices. A slice's scores are computed again in the backward pass, unless there is
    but one."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, ids: Tensor, head: _Head, temperature: float
    ) -> Tensor:
        size = max(1, SLICE_BYTES // (4 * weight.shape[0]))
        ctx.head, ctx.temperature, ctx.size, ctx.kept = head, temperature, size, None
        ctx.autocast = torch.is_autocast_enabled(hidden.device.type)
        taken, totals = [], []
        for lines, wanted in zip(hidden.split(size), ids.split(size), strict=True):
            scores = head.logits(lines)
            if temperature != 1:
                scores.div_(temperature)
            total = scores.logsumexp(-1)
            taken.append(scores.gather(1, wanted[:, None])[:, 0] - total)
            totals.append(total)
            if len(hidden) <= size and any(ctx.needs_input_grad):
                ctx.kept = scores
        ctx.save_for_backward(hidden, ids, torch.cat(totals))
        return torch.cat(taken)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        hidden, ids, totals = ctx.saved_tensors
        head, size = ctx.head, ctx.size
        for_weight: Tensor | None = None
        for_hidden = []
        with torch.autocast(hidden.device.type, torch.bfloat16, enabled=ctx.autocast):
            parts = zip(*(part.split(size) for part in (hidden, ids, totals, grads[0])), strict=True)
            for lines, wanted, total, grad in parts:
                pull = _pull(ctx, lines, wanted, total, grad)
                for_hidden.append(product(pull, head.weight.t()).to(hidden.dtype))
                if ctx.needs_input_grad[1]:
                    more = product(pull.t(), lines.t())
                    for_weight = more if for_weight is None else for_weight.add_(more)
        return torch.cat(for_hidden), for_weight, None, None, None


def _pull(ctx: Any, lines: Tensor, wanted: Tensor, total: Tensor, grad: Tensor) -> Tensor:
    """The gradient at the head's product: (taken - probability) / temperature, through the cap."""
    scores, softcap = ctx.kept, ctx.head.softcap
    if scores is None:
        scores = ctx.head.logits(lines)
        if ctx.temperature != 1:
            scores.div_(ctx.temperature)
    ctx.kept = None
    slope = 1 - (scores * (ctx.temperature / softcap)) ** 2 if softcap else None
    pull = scores.sub_(total[:, None]).exp_().mul_(-grad[:, None])
    pull.scatter_add_(1, wanted[:, None], grad[:, None].to(pull.dtype))
    if slope is not None:
        pull.mul_(slope)
    return pull.div_(ctx.temperature) if ctx.temperature != 1 else pull


def taken_states(
    network: PreTrainedModel, prompts: Sequence[Sequence[int]], rows: Sequence[Sequence[Sequence[int]]]
) -> Tensor:
    """What the network knew before every token of every rollout, one behind the other; `rows` holds every
    prompt's rollouts."""
    # A rollout's last token comes before nothing that is asked for.
    stream = Stream(prompts, [[row[:-1] for row in group] for group in rows], network.device)
    hidden = hidden_states(network, stream.ids, stream.positions, stream)
    return hidden.index_select(
        0, torch.tensor(_places_before(prompts, rows), dtype=torch.long, device=network.device)
    )


def _places_before(prompts: Sequence[Sequence[int]], rows: Sequence[Sequence[Sequence[int]]]) -> list[int]:
    """For every token of a rollout its predecessor's place in the stream."""
    places: list[int] = []
    end, place = 0, sum(map(len, prompts))
    for prompt, group in zip(prompts, rows, strict=True):
        end += len(prompt)
        for row in group:
            if row:
                places += [end - 1, *range(place, place + len(row) - 1)]
                place += len(row) - 1
    return places


# ── the proof ─────────────────────────────────────────────────────────────────────────────────────────

UNABLE = (AttributeError, IndexError, KeyError, NotImplementedError, RuntimeError, TypeError, ValueError)
"""What a network that takes no stream, has no head of its own or mixes tokens elsewhere may raise."""


def _prove(bare: Any) -> Proof:
    prompts, rows, _ = _toy(bare)
    with torch.no_grad():
        plain = torch.cat(
            [_plain(bare, p, row) for p, group in zip(prompts, rows, strict=True) for row in group]
        )
    try:
        shared, kept_bytes = _passed(bare)
        with torch.no_grad():
            cache, grown = _grown(bare, prompts, rows)
    except UNABLE as error:
        return Proof(f"{type(error).__name__} in its pass over a stream")
    apart = max(float((shared - plain).abs().max()), float((grown - plain[[0, 1, 5, 6, 7]]).abs().max()))
    if not apart <= TOLERANCE:
        return Proof(f"shared prompts change a log-probability by {apart:.2g}")
    return Proof("", kept_bytes, cache.bytes // 36)


def _toy(bare: Any) -> tuple[list[list[int]], list[list[list[int]]], Tensor]:
    """Two prompts, their three rollouts, and the rollouts' tokens in a line."""
    many = bare.get_input_embeddings().weight.shape[0]
    toy = [(7 * i + 3) % many for i in range(40)]
    prompts, rows = [toy[:14], toy[14:19]], [[toy[20:25], toy[25:26]], [toy[26:33]]]
    return (
        prompts,
        rows,
        torch.tensor([i for group in rows for row in group for i in row], device=bare.device),
    )


def _passed(bare: Any) -> tuple[Tensor, int]:
    """Log-probabilities of the toy's rollouts, and what the pass kept for the backward one, a token."""
    prompts, rows, ids = _toy(bare)
    kept: dict[int, int] = {}
    own = {weight.data_ptr() for weight in bare.parameters()}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if tensor.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        lines = taken_states(bare, prompts, rows)
        shared = taken_logprobs(bare, lines, ids, 1.0).detach()
    return shared, sum(kept.values()) // 29


def _plain(bare: Any, prompt: list[int], row: list[int]) -> Tensor:
    ids = torch.tensor([[*prompt, *row]], device=bare.device)
    logits = bare(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1]
    return logits.float().log_softmax(-1).gather(1, ids[0, len(prompt) :, None])[:, 0]


def _grown(bare: Any, prompts: list[list[int]], rows: list[list[list[int]]]) -> tuple[Cache, Tensor]:
    """The same by way of generation, as far as every prompt's first two tokens go."""
    cache = Cache(prompts, 2, 2, bare.device)
    firsts = [[group[0], group[-1]] for group in rows]
    tokens = torch.tensor([row[0] for pair in firsts for row in pair], device=bare.device)
    before = next_logits(bare, begin(bare, cache)).float().log_softmax(-1)
    after = next_logits(bare, go_on(bare, cache, tokens)).float().log_softmax(-1)
    picked = [before[0, rows[0][0][0]], after[0, rows[0][0][1]], before[0, rows[0][1][0]]]
    picked += [before[1, rows[1][0][0]], after[2, rows[1][0][1]]]
    return cache, torch.stack(picked)


# ── generation ────────────────────────────────────────────────────────────────────────────────────────


def begin(network: PreTrainedModel, cache: Cache) -> Tensor:
    """Every prompt once; the hidden state of its last token, [P, width]."""
    stream = cache.stream
    hidden = hidden_states(network, stream.ids, stream.positions, cache)
    cache.advance()
    return hidden.index_select(0, stream.length.cumsum(0) - 1)


def go_on(network: PreTrainedModel, cache: Cache, tokens: Tensor) -> Tensor:
    """One more token of every row that goes on; its hidden state."""
    hidden = hidden_states(network, tokens, cache.positions, cache)
    cache.advance()
    return hidden
