"""LoRA: a few weights beside a model's own, which stay as they are. Through peft, in place.

A network that carries an adapter is the same object as before: policy, learner and checkpoint take it as any
other. Switched off, it is the model that the run began with.
"""

# pyright: standard

import importlib.util
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from waggledance.errors import MissingError
from waggledance.model import Model

NAME = "default"
"""peft's for a network's only adapter; it stands in its weights' names."""


def adapt(model: Model, rank: int, scale: float, seed: int) -> None:
    """Every linear map but the head gets a product of that rank beside it, times `scale`; nought at first."""
    if importlib.util.find_spec("peft") is None:
        raise MissingError(f"learner.lora_rank = {rank} needs peft; pip install 'waggledance[lora]'")
    from peft import LoraConfig, inject_adapter_in_model

    alpha: Any = scale * rank  # annotated as a whole number, used as any
    config = LoraConfig(r=rank, lora_alpha=alpha, target_modules="all-linear", lora_dropout=0.0)
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="fan_in_fan_out")  # peft sets it right, and says so
        torch.manual_seed(seed)
        inject_adapter_in_model(config, model.network, NAME)
    model.network.eval()


def adapted_layers(network: PreTrainedModel) -> Iterator[tuple[str, Any]]:
    """The linear maps with an adapter, by their names."""
    return ((name, layer) for name, layer in network.named_modules() if hasattr(layer, "lora_A"))


def is_adapted(network: PreTrainedModel) -> bool:
    return any(True for _ in adapted_layers(network))


@contextmanager
def switched_off(network: PreTrainedModel) -> Iterator[None]:
    """The model without its adapter; nothing where there is none."""
    layers = [layer for _, layer in adapted_layers(network)]
    # The switch alone: peft's own also stops the gradients, and would have to guess whose to start again.
    for layer in layers:
        layer._disable_adapters = True
    try:
        yield
    finally:
        for layer in layers:
            layer._disable_adapters = False


@torch.no_grad()
def merged_weights(network: PreTrainedModel) -> dict[str, Tensor]:
    """The weights of a model without an adapter that says what this one says. The network is left alone."""
    weights = {
        name.replace(".base_layer.", "."): weight
        for name, weight in network.state_dict().items()
        if ".lora_" not in name
    }
    for name, layer in adapted_layers(network):
        weights[f"{name}.weight"] = weights[f"{name}.weight"] + layer.get_delta_weight(NAME)
    return weights
