"""What a model gives each trained token, with gradients. Every prompt is computed once.

The prompts run first and leave their keys and values in a cache; the cache is repeated for their rollouts,
which run on top. The gradients flow back through the repetition, so this equals a padded pass over whole
sequences, at a fraction of the tokens.
"""

# pyright: standard

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from waggledance.learner.batch import Batch


def token_logprobs(network: PreTrainedModel, batch: Batch, temperature: float) -> Tensor:
    """Log-probability of every token of every rollout, [R, T]; what lies under the padding means nothing."""
    return _gather(_outputs(network, batch, states=False)[0], batch.ids_RT, temperature)


def token_logprobs_and_states(
    network: PreTrainedModel, batch: Batch, temperature: float
) -> tuple[Tensor, Tensor]:
    """The same, and what the network knew before each token: its last hidden states, [R, T, H]."""
    logits_RTV, states_RTH = _outputs(network, batch, states=True)
    assert states_RTH is not None
    return _gather(logits_RTV, batch.ids_RT, temperature), states_RTH


def _outputs(network: PreTrainedModel, batch: Batch, *, states: bool) -> tuple[Tensor, Tensor | None]:
    """Logits and, where they are asked for, the last hidden states, one for every token of every rollout."""
    prompt_mask, owner = batch.prompt_mask_PS, batch.owner_R
    positions_PS = (prompt_mask.cumsum(1) - 1).clamp(min=0)
    cache = DynamicCache(config=network.config)
    prompted = network(
        input_ids=batch.prompt_ids_PS,
        attention_mask=prompt_mask,
        position_ids=positions_PS,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
        output_hidden_states=states,
    )
    logits = prompted.logits[owner]
    known = prompted.hidden_states[-1][owner, -1:] if states else None
    if batch.ids_RT.shape[1] == 1:
        return logits, known
    cache.batch_select_indices(owner)
    steps = batch.ids_RT.shape[1] - 1  # the last token predicts nothing that is trained on
    rest = network(
        input_ids=batch.ids_RT[:, :-1],
        attention_mask=torch.cat([prompt_mask[owner], prompt_mask.new_ones(len(owner), steps)], 1),
        position_ids=positions_PS[owner, -1:] + 1 + torch.arange(steps, device=owner.device),
        past_key_values=cache,
        use_cache=True,
        output_hidden_states=states,
    )
    if known is not None:
        known = torch.cat([known, rest.hidden_states[-1]], 1)
    return torch.cat([logits, rest.logits], 1), known


def _gather(logits_RTV: Tensor, ids_RT: Tensor, temperature: float) -> Tensor:
    logprobs = torch.log_softmax(logits_RTV.float() / temperature, -1)
    return logprobs.gather(-1, ids_RT[..., None])[..., 0]
