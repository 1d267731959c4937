"""What a model gives each trained token, with gradients. Every prompt is computed once.

A proven network runs over a stream: prompts and rollouts in one pass without padding, the vocabulary's
scores a slice at a time. Any other makes the plain pass over padded sequences, every prompt once for each of
its rollouts: the same numbers, at several times the cost.
"""

# pyright: standard

import torch
from torch import Tensor
from transformers import PreTrainedModel

from waggledance.forward import products_of, proof_of, taken_logprobs, taken_states
from waggledance.learner.batch import Batch


def token_logprobs(network: PreTrainedModel, batch: Batch, temperature: float) -> Tensor:
    """Log-probability of every token of every rollout, [R, T]; what lies under the padding means nothing."""
    if proof_of(network).objection:
        return _plain(network, batch, temperature)[0]
    taken = batch.mask_RT > 0
    lines = taken_states(network, *sequences(batch))
    logprobs = taken_logprobs(network, lines, batch.ids_RT[taken], temperature)
    return logprobs.new_zeros(taken.shape).masked_scatter(taken, logprobs)


def token_logprobs_and_states(
    network: PreTrainedModel, batch: Batch, temperature: float
) -> tuple[Tensor, Tensor]:
    """The same, and what the network knew before each token: its last hidden states, [R, T, H]."""
    if proof_of(network).objection:
        return _plain(network, batch, temperature)
    taken = batch.mask_RT > 0
    lines = taken_states(network, *sequences(batch))
    logprobs = taken_logprobs(network, lines, batch.ids_RT[taken], temperature)
    states_RTH = lines.new_zeros(*taken.shape, lines.shape[-1]).masked_scatter(taken[..., None], lines)
    return logprobs.new_zeros(taken.shape).masked_scatter(taken, logprobs), states_RTH


def sequences(batch: Batch) -> tuple[list[list[int]], list[list[list[int]]]]:
    """Every prompt, and every prompt's rollouts, without padding."""
    sizes = batch.prompt_mask_PS.sum(1).tolist()
    prompts = [line[len(line) - n :] for line, n in zip(batch.prompt_ids_PS.tolist(), sizes, strict=True)]
    rows: list[list[list[int]]] = [[] for _ in prompts]
    lengths = batch.mask_RT.sum(1).int().tolist()
    for owner, line, n in zip(batch.owner_R.tolist(), batch.ids_RT.tolist(), lengths, strict=True):
        rows[owner].append(line[:n])
    return prompts, rows


def _plain(network: PreTrainedModel, batch: Batch, temperature: float) -> tuple[Tensor, Tensor]:
    """Left-padded prompt and right-padded rollout behind each other: where a rollout begins is one column."""
    owner, width = batch.owner_R, batch.ids_RT.shape[1]
    ids = torch.cat([batch.prompt_ids_PS[owner], batch.ids_RT], 1)
    mask = torch.cat([batch.prompt_mask_PS[owner], (batch.mask_RT > 0).long()], 1)
    with products_of(network):
        out = network(
            input_ids=ids,
            attention_mask=mask,
            position_ids=(mask.cumsum(1) - 1).clamp(min=0),
            use_cache=False,
            logits_to_keep=width + 1,
            output_hidden_states=True,
        )
    logprobs = torch.log_softmax(out.logits[:, :-1].float() / temperature, -1)
    states = out.hidden_states[-1][:, -width - 1 : -1]
    return logprobs.gather(-1, batch.ids_RT[..., None])[..., 0], states
