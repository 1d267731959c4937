"""The model as it was when the run began: what a pull, where one is asked for, pulls towards.

A copy of it, or, where only an adapter learns, the model itself with the adapter switched off.
"""

# pyright: standard

import copy

import torch
from torch import Tensor
from transformers import PreTrainedModel

from waggledance.adapter import is_adapted, switched_off
from waggledance.learner.batch import Batch
from waggledance.learner.logprobs import token_logprobs


class Reference:
    def __init__(self, network: PreTrainedModel, temperature: float) -> None:
        self._network = network
        if not is_adapted(network):
            self._network = copy.deepcopy(network).requires_grad_(requires_grad=False)
        self._temperature = temperature

    @torch.no_grad()
    def logprobs(self, batch: Batch) -> Tensor:
        with switched_off(self._network):
            return token_logprobs(self._network, batch, self._temperature)
