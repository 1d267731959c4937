"""Layers that keep nothing but what came in: the backward pass computes each of them once more.

A network comes in and is changed in place; how many layers it has goes out. Numbers and gradients stay what
they were, for a network has no randomness while it learns. Without gradients a layer runs as it always did.
"""

# pyright: standard

from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from waggledance.prefix import attending, attention_of


def install(network: PreTrainedModel) -> int:
    layers = [layer for layer in network.modules() if isinstance(layer, GradientCheckpointingLayer)]
    for layer in layers:
        # transformers' own switch works in training alone; there, dropout would change what was sampled from.
        layer.forward = partial(_forward, layer, network.config)
    return len(layers)


def _forward(layer: Any, settings: Any, *given: Any, **named: Any) -> Any:
    forward = partial(type(layer).forward, layer)
    if not torch.is_grad_enabled():
        return forward(*given, **named)
    again = partial(_contexts, settings, attention_of(settings))
    return checkpoint(forward, *given, use_reentrant=False, context_fn=again, **named)


def _contexts(
    settings: Any, attention: str
) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Of the first pass, and of the second: by then, the network's attention may be another."""
    return nullcontext(), attending(settings, attention)
