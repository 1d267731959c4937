"""Minds for a lab's nodes: stacked where the plan and the model allow it, else each by itself.

The one place where the lab meets models, policies and learners.
"""

# pyright: standard

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from waggledance.config import NodeConfig, PolicyConfig
from waggledance.errors import UsageError
from waggledance.lab.bank import Bank, names_of
from waggledance.lab.plan import Seat, WarmUp
from waggledance.lab.thinkers import Apart, Mind, Thinkers

if TYPE_CHECKING:
    from waggledance.lab.stack import Stack
    from waggledance.model import Model

ROWS_AT_ONCE_CPU, ROWS_AT_ONCE = 512, 8192
"""Completions in one batched call: on a CPU as many as stay near its caches."""


def open_thinkers(seats: Sequence[Seat], bank: Bank, *, stacked: bool, device: str) -> Thinkers:
    starts = Starts(bank, device)
    if stacked and all(seat.config.policy.kind == "hf" for seat in seats):
        return _together(seats, starts, device)
    return Apart([_mind(seat, starts) for seat in seats])


class Starts:
    """The models that nodes start from, each loaded and warmed up once."""

    def __init__(self, bank: Bank, device: str) -> None:
        self._bank = bank
        self._device = device
        self._loaded: dict[bytes, Model] = {}

    def model(self, seat: Seat) -> "Model":
        from waggledance.model import load_model

        policy, lessons = seat.config.policy, seat.warm_up
        words = (lessons.tasks or seat.config.tasks) if lessons else ()
        key = msgspec.json.encode((policy.model, policy.system_prompt, policy.precision, lessons, words))
        if key not in self._loaded:
            start = load_model(
                policy.model,
                device=self._device,
                system_prompt=policy.system_prompt,
                precision=policy.precision,
            )
            self._loaded[key] = self._warmed_up(start, lessons, words) if lessons else start
        return self._loaded[key]

    def _warmed_up(self, start: "Model", lessons: WarmUp, words: Sequence[str]) -> "Model":
        from waggledance.lab.warmup import warmed_up

        sources = self._bank.named(names_of(words))
        return warmed_up(start, [source.task(k) for source in sources for k in range(source.size)], lessons)


def _mind(seat: Seat, starts: Starts) -> Mind:
    from waggledance.cli.assemble import thinking  # brings in all that a whole node needs

    if seat.config.policy.kind == "scripted":
        _, policy, learner = thinking(seat.config)
        return Mind(policy, learner)
    start = starts.model(seat)
    model = replace(start, network=copy.deepcopy(start.network))
    _, policy, learner = thinking(seat.config, model)
    return Mind(policy, learner)


def _together(seats: Sequence[Seat], starts: Starts, device: str) -> Thinkers:
    from waggledance.lab.together import Together

    kinds: dict[bytes, list[int]] = {}
    for place, seat in enumerate(seats):
        kinds.setdefault(_kind(seat.config), []).append(place)
    return Together(
        [(_stack([seats[k] for k in places], starts, device), places) for places in kinds.values()]
    )


def _kind(config: NodeConfig) -> bytes:
    """Nodes of one kind fit one stack."""
    plain = PolicyConfig()
    policy = msgspec.structs.replace(config.policy, completions=plain.completions, device=plain.device)
    return msgspec.json.encode((policy, config.learner))


def _stack(seats: Sequence[Seat], starts: Starts, device: str) -> "Stack":
    import torch

    from waggledance.lab.stack import Stack, StackSettings
    from waggledance.learner.loss import Clip

    policy, learner = seats[0].config.policy, seats[0].config.learner
    if learner.kind != "grpo" or learner.lora_rank or policy.temperature == 0:
        raise UsageError(
            f"learner.kind = {learner.kind!r} with lora_rank {learner.lora_rank} at temperature "
            f"{policy.temperature:g}: stacked nodes learn all weights by grpo and sample; set stacked = false"
        )
    if device != "cpu":
        # Rounding as small as a step's noise is no loss, and matrix products are several times faster.
        torch.set_float32_matmul_precision("high")
    settings = StackSettings(
        temperature=policy.temperature,
        max_tokens=policy.max_tokens,
        learning_rate=learner.learning_rate,
        clip=Clip(learner.clip_low, learner.clip_high),
        kl_weight=learner.kl_weight,
        max_grad_norm=learner.max_grad_norm,
        epochs=learner.epochs,
        max_skipped=learner.max_skipped,
        rows_at_once=ROWS_AT_ONCE_CPU if device == "cpu" else ROWS_AT_ONCE,
    )
    return Stack([starts.model(seat) for seat in seats], settings, device)
