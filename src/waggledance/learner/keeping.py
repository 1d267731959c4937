"""A learner's state as tensors by name, so that a checkpoint holds no pickle: weights, and what the optimiser
remembers of each.

Weights come in by name, with the optimiser that moves them; the names are all that ties one to the other.
"""

# pyright: standard

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import Module, Parameter
from torch.optim import Optimizer

from waggledance.errors import ModelError

WEIGHT, OPTIMISER = "weight", "optimiser"


def trained(network: Module) -> dict[str, Parameter]:
    return {name: weight for name, weight in network.named_parameters() if weight.requires_grad}


def kept(weights: Mapping[str, Parameter], optimiser: Optimizer) -> dict[str, Tensor]:
    """No copies: whoever writes them does so before the next step."""
    tensors = {f"{WEIGHT}/{name}": weight.detach() for name, weight in weights.items()}
    for name, weight in weights.items():
        for key, value in optimiser.state.get(weight, {}).items():
            tensors[f"{OPTIMISER}/{key}/{name}"] = value.detach()
    return tensors


@torch.no_grad()
def restore(weights: Mapping[str, Parameter], optimiser: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    _check_weights(weights, tensors)
    for name, weight in weights.items():
        weight.copy_(tensors[f"{WEIGHT}/{name}"])
    optimiser.state.clear()
    for label, tensor in tensors.items():
        what, _, rest = label.partition("/")
        if what == OPTIMISER:
            key, _, name = rest.partition("/")
            weight = weights[name]
            # Counts of steps stay where the optimiser keeps them; averages live beside their weights.
            value = tensor.clone() if tensor.ndim == 0 else tensor.to(weight.device, copy=True)
            optimiser.state[weight][key] = value


def _check_weights(weights: Mapping[str, Parameter], tensors: Mapping[str, Tensor]) -> None:
    there = {
        label.removeprefix(f"{WEIGHT}/"): tuple(tensor.shape)
        for label, tensor in tensors.items()
        if label.startswith(f"{WEIGHT}/")
    }
    here = {name: tuple(weight.shape) for name, weight in weights.items()}
    if there == here:
        return
    odd = sorted(name for name in {*there, *here} if there.get(name) != here.get(name))
    raise ModelError(
        f"the checkpoint is of another model: {len(odd)} weights differ, {odd[0]} for one "
        f"({there.get(odd[0], 'not')} there, {here.get(odd[0], 'not')} here); "
        "name the model that the run began with, or another folder with --dir"
    )
