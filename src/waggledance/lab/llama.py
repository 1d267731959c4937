"""Many Llamas of one shape, side by side: every weight has a first axis N, one entry a node.

Token ids come in, logits go out, and no node's numbers touch another's: row n of a batched product uses node
n's weights alone. Prompts are computed once and every completion of a group attends to its prompt's keys.
Axes: N nodes, G groups a node, C completions a group, S prompt tokens, T completion tokens, K key heads,
Q query heads a key head, D a head's width, M tokens of a node in one row, V vocabulary.
"""

# pyright: standard

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from waggledance.errors import ModelError
from waggledance.model import Model

HIDDEN = -1e30
"""Added to a score that must not count; finite, so that a row of padding alone gives no NaN."""

Weights = dict[str, Tensor]
Kept = list[tuple[Tensor, Tensor]]
"""Keys and values of every layer."""


@dataclass(frozen=True, slots=True)
class Shape:
    layers: int
    key_heads: int
    queries: int
    """Query heads a key head."""
    width: int
    """Of a head."""
    vocabulary: int
    epsilon: float
    tied: bool
    """Whether tokens are read and written by the same weights."""
    turns: float
    """The base of the rotary positions."""


def shape_of(model: Model) -> Shape:
    """What is stacked has one shape; ModelError for a model that is no plain Llama."""
    config: Any = model.network.config
    rope: dict[str, Any] = getattr(config, "rope_parameters", None) or {}
    plain = (
        config.model_type == "llama"
        and config.hidden_act == "silu"
        and not (config.attention_bias or config.mlp_bias)
        and rope.get("rope_type", "default") == "default"
    )
    if not plain:
        raise ModelError(
            f"model {model.name} is no plain Llama, so its nodes cannot be stacked; set stacked = false"
        )
    return Shape(
        layers=config.num_hidden_layers,
        key_heads=config.num_key_value_heads,
        queries=config.num_attention_heads // config.num_key_value_heads,
        width=config.head_dim,
        vocabulary=config.vocab_size,
        epsilon=config.rms_norm_eps,
        tied=config.tie_word_embeddings,
        turns=float(rope.get("rope_theta", 10000.0)),
    )


def weights_of(state: Mapping[str, Tensor], shape: Shape) -> Weights:
    """One network's weights, with those that are multiplied together laid side by side."""
    found: Weights = {"embedding": state["model.embed_tokens.weight"], "norm": state["model.norm.weight"]}
    if not shape.tied:
        found["head"] = state["lm_head.weight"]
    for layer in range(shape.layers):
        above = f"model.layers.{layer}."
        found[f"{layer}.attend.norm"] = state[above + "input_layernorm.weight"]
        found[f"{layer}.attend.in"] = torch.cat([state[f"{above}self_attn.{x}_proj.weight"] for x in "qkv"])
        found[f"{layer}.attend.out"] = state[above + "self_attn.o_proj.weight"]
        found[f"{layer}.think.norm"] = state[above + "post_attention_layernorm.weight"]
        found[f"{layer}.think.in"] = torch.cat([state[f"{above}mlp.{x}_proj.weight"] for x in ("gate", "up")])
        found[f"{layer}.think.out"] = state[above + "mlp.down_proj.weight"]
    return found


def state_of(weights: Weights, shape: Shape, node: int) -> dict[str, Tensor]:
    """The way back: one node's weights under the names of its network."""
    own = {name: weight[node] for name, weight in weights.items()}
    state = {"model.embed_tokens.weight": own["embedding"], "model.norm.weight": own["norm"]}
    state |= {} if shape.tied else {"lm_head.weight": own["head"]}
    keys = shape.key_heads * shape.width
    for layer in range(shape.layers):
        above = f"model.layers.{layer}."
        parts = own[f"{layer}.attend.in"].split([shape.queries * keys, keys, keys])
        state |= {f"{above}self_attn.{x}_proj.weight": part for x, part in zip("qkv", parts, strict=True)}
        gate, up = own[f"{layer}.think.in"].chunk(2)
        state[above + "mlp.gate_proj.weight"], state[above + "mlp.up_proj.weight"] = gate, up
        state[above + "input_layernorm.weight"] = own[f"{layer}.attend.norm"]
        state[above + "self_attn.o_proj.weight"] = own[f"{layer}.attend.out"]
        state[above + "post_attention_layernorm.weight"] = own[f"{layer}.think.norm"]
        state[above + "mlp.down_proj.weight"] = own[f"{layer}.think.out"]
    return state


class Llamas:
    def __init__(self, shape: Shape, weights: Weights) -> None:
        self.shape = shape
        self.weights = weights

    def prompts(self, ids_NGS: Tensor, mask_NGS: Tensor) -> tuple[Tensor, Kept]:
        """The last column's state [N, G, H], and the prompts' keys and values [N, G, K, S, D]."""
        N, G, S = ids_NGS.shape
        positions = (mask_NGS.cumsum(-1) - 1).clamp(min=0).view(N, -1)
        causal = torch.ones(S, S, dtype=torch.bool, device=ids_NGS.device).tril()
        bias = _bias(causal & (mask_NGS[:, :, None, None, None, :] > 0))  # N G 1 1 S S
        packing = Packing(mask_NGS.view(N, -1))
        turn = self._turning(packing.packed(positions))
        x = self._embed(packing.packed(ids_NGS.view(N, -1)))
        kept: Kept = []
        for layer in range(self.shape.layers):
            q, k, v = (packing.spread(part) for part in self._heads(layer, x, turn))
            q = q.unflatten(1, (G, S)).permute(0, 1, 3, 4, 2, 5)  # N G K Q S D
            k, v = (part.unflatten(1, (G, S)).transpose(2, 3) for part in (k, v))  # N G K S D
            scores = (q.flatten(3, 4) @ k.transpose(-1, -2)).unflatten(3, (-1, S)) + bias
            mixed = (scores.softmax(-1).flatten(3, 4) @ v).unflatten(3, (-1, S)).permute(0, 1, 4, 2, 3, 5)
            x = self._rest(layer, x, packing.packed(mixed.reshape(N, G * S, -1)))
            kept.append((k, v))
        last = packing.spread(x).view(N, G, S, -1)[:, :, -1]
        return last, kept

    def completions(
        self, ids_NGCT: Tensor, packing: "Packing", lengths_NG: Tensor, prompts: "Prompts"
    ) -> Tensor:
        """The states [N, M, H] of the tokens in the packing, each on top of its group's prompt."""
        N, G, C, T = ids_NGCT.shape
        steps = torch.arange(T, device=ids_NGCT.device)
        positions = (lengths_NG[:, :, None, None] + steps).expand(N, G, C, T).reshape(N, -1)
        causal = torch.ones(T, T, dtype=torch.bool, device=ids_NGCT.device).tril()
        own_bias = _bias(causal)[:, None]  # T 1 T
        turn = self._turning(packing.packed(positions))
        x = self._embed(packing.packed(ids_NGCT.reshape(N, -1)))
        for layer in range(self.shape.layers):
            q, k, v = (packing.spread(part).unflatten(1, (G, C, T)) for part in self._heads(layer, x, turn))
            q = q.permute(0, 1, 4, 2, 3, 5, 6)  # N G K C T Q D
            k, v = (part.permute(0, 1, 4, 2, 3, 5) for part in (k, v))
            mixed = _attend(q, prompts.kept[layer], (k, v), prompts.bias, own_bias)
            mixed = mixed.permute(0, 1, 3, 4, 2, 5, 6).reshape(N, G * C * T, -1)
            x = self._rest(layer, x, packing.packed(mixed))
        return x

    def step(
        self, ids_NM: Tensor, positions_NM: Tensor, going: "Packing", at: int, prompts: "Prompts"
    ) -> Tensor:
        """The state [N, M, H] of one more token, the answers' `at`-th, in every slot that goes on."""
        turn = self._turning(positions_NM)
        x = self._embed(ids_NM)
        for layer in range(self.shape.layers):
            q, k, v = (going.spread(part) for part in self._heads(layer, x, turn))
            own_k, own_v = prompts.own[layer]
            slots = own_k.shape[1], own_k.shape[3]  # G C
            own_k[..., at, :] = k.unflatten(1, slots).transpose(2, 3)
            own_v[..., at, :] = v.unflatten(1, slots).transpose(2, 3)
            q = q.unflatten(1, slots).transpose(2, 3)[:, :, :, :, None]  # N G K C 1 Q D
            own = own_k[..., : at + 1, :], own_v[..., : at + 1, :]
            mixed = _attend(q, prompts.kept[layer], own, prompts.bias, None)
            flat = mixed[:, :, :, :, 0].transpose(2, 3).flatten(3).flatten(1, 2)
            x = self._rest(layer, x, going.packed(flat))
        return x

    def logits(self, x_NMH: Tensor) -> Tensor:
        normed = _normed(x_NMH, self.weights["norm"], self.shape.epsilon)
        head = self.weights["embedding" if self.shape.tied else "head"]
        return normed @ head.transpose(1, 2)

    def _embed(self, ids_NM: Tensor) -> Tensor:
        table = self.weights["embedding"]
        N, V, H = table.shape
        first = torch.arange(N, device=ids_NM.device)[:, None] * V
        return functional.embedding(ids_NM + first, table.reshape(N * V, H))

    def _turning(self, positions_NM: Tensor) -> tuple[Tensor, Tensor]:
        half = torch.arange(0, self.shape.width, 2, device=positions_NM.device) / self.shape.width
        angles = positions_NM[..., None].float() / self.shape.turns**half
        both = torch.cat([angles, angles], -1)[:, :, None]
        return both.cos(), both.sin()

    def _heads(self, layer: int, x: Tensor, turn: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [N, M, K, Q, D], keys and values [N, M, K, D]."""
        shape, (N, M, _) = self.shape, x.shape
        normed = _normed(x, self.weights[f"{layer}.attend.norm"], shape.epsilon)
        every = (normed @ self.weights[f"{layer}.attend.in"].transpose(1, 2)).view(N, M, -1, shape.width)
        count = shape.key_heads
        turned = _turned(every[:, :, :-count], turn)
        q = turned[:, :, :-count].unflatten(2, (count, shape.queries)) * shape.width**-0.5
        return q, turned[:, :, -count:], every[:, :, -count:]

    def _rest(self, layer: int, x: Tensor, mixed_NMH: Tensor) -> Tensor:
        x = x + mixed_NMH @ self.weights[f"{layer}.attend.out"].transpose(1, 2)
        normed = _normed(x, self.weights[f"{layer}.think.norm"], self.shape.epsilon)
        gate, up = (normed @ self.weights[f"{layer}.think.in"].transpose(1, 2)).chunk(2, -1)
        return x + (functional.silu(gate) * up) @ self.weights[f"{layer}.think.out"].transpose(1, 2)


class Packing:
    """Which of a node's slots are worth computing: those that count, and as many more as the node with the
    most of them needs for all rows to be of one length."""

    def __init__(self, counts_NL: Tensor, limit: float = 1.0) -> None:
        """Nothing is packed where more than this share of the slots would be left."""
        self.slots = counts_NL.shape[1]
        counting = counts_NL > 0
        most = int(counting.sum(1).max())
        self._index: Tensor | None = None
        if most < self.slots and most <= limit * self.slots:
            self._index = torch.argsort((~counting).int(), dim=1, stable=True)[:, :most]

    @property
    def width(self) -> int:
        return self.slots if self._index is None else self._index.shape[1]

    def packed(self, slots: Tensor) -> Tensor:
        """[N, slots, …] → [N, M, …]."""
        return slots if self._index is None else slots.gather(1, self._wide(slots))

    def spread(self, packed: Tensor, out: Tensor | None = None) -> Tensor:
        """[N, M, …] → [N, slots, …]; elsewhere stands what `out` held, else zeros."""
        if self._index is None:
            return packed
        N, _, *rest = packed.shape
        out = packed.new_zeros(N, self.slots, *rest) if out is None else out
        return out.scatter(1, self._wide(packed), packed)

    def _wide(self, like: Tensor) -> Tensor:
        assert self._index is not None
        N, M = self._index.shape
        return self._index.view(N, M, *[1] * (like.dim() - 2)).expand(N, M, *like.shape[2:])


class Prompts:
    """Prompts that are being answered: their keys and values, and room for those of the answers."""

    def __init__(self, kept: Kept, mask_NGS: Tensor, completions: int = 0, room: int = 0) -> None:
        self.kept = kept
        self.bias = _bias(mask_NGS > 0)[:, :, None, None, None, None]  # N G 1 1 1 1 S
        N, G, K, _, D = kept[0][0].shape
        self.own: Kept = [
            (k.new_zeros(N, G, K, completions, room, D), k.new_zeros(N, G, K, completions, room, D))
            for k, _ in kept
        ]


def _bias(seen: Tensor) -> Tensor:
    return torch.zeros((), device=seen.device).where(seen, HIDDEN)


def _normed(x: Tensor, weight_NH: Tensor, epsilon: float) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon) * weight_NH[:, None]


def _turned(heads: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    cos, sin = turn
    left, right = heads.chunk(2, -1)
    return heads * cos + torch.cat([-right, left], -1) * sin


def _attend(
    q: Tensor,
    prompt: tuple[Tensor, Tensor],
    own: tuple[Tensor, Tensor],
    prompt_bias: Tensor,
    own_bias: Tensor | None,
) -> Tensor:
    """Queries [N, G, K, C, T, Q, D] over their prompt's [N, G, K, S, D] and their own [N, G, K, C, U, D]."""
    (N, G, K, C, T, Q, D), S = q.shape, prompt[0].shape[-2]
    q = q.reshape(N, G, K, C * T * Q, D)
    far = (q @ prompt[0].transpose(-1, -2)).view(N, G, K, C, T, Q, S) + prompt_bias
    near = (q.view(N, G, K, C, T * Q, D) @ own[0].transpose(-1, -2)).view(N, G, K, C, T, Q, -1)
    near = near if own_bias is None else near + own_bias
    shares = torch.cat([far, near], -1).softmax(-1)
    from_prompt = shares[..., :S].reshape(N, G, K, C * T * Q, S) @ prompt[1]
    from_own = shares[..., S:].reshape(N, G, K, C, T * Q, -1) @ own[1]
    return from_prompt.view(N, G, K, C, T, Q, D) + from_own.view(N, G, K, C, T, Q, D)
