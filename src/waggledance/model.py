"""A node's language model: weights, tokenizer, and how text becomes tokens.

Policy and learner share one of these, so both see the same prompt for a task. Foreign text is encoded
without special tokens: whatever a peer writes, its text can never become an end token or a chat role.
"""

# pyright: standard

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.utils import logging as transformers_logging

from waggledance.errors import MissingError, ModelError
from waggledance.task import Task

TINY = "tiny"
TINY_FOLDER = Path(__file__).parent / "tiny"

SYSTEM_PROMPT = (
    "Think about the question, then give the final answer between <answer> and </answer> tags. "
    "Only what stands between the last such tags counts."
)


@dataclass(frozen=True, slots=True)
class Model:
    name: str
    network: PreTrainedModel
    tokenizer: Any
    """A Hugging Face tokenizer, which its own annotations do not describe."""
    system_prompt: str
    end_ids: tuple[int, ...]
    """Tokens that end a completion; the first is the one appended to foreign text that was finished."""
    pad_id: int
    window: int
    """The most tokens of prompt and completion together."""

    @property
    def device(self) -> torch.device:
        return self.network.device

    @property
    def weights(self) -> int:
        return sum(parameter.numel() for parameter in self.network.parameters())

    def prompt_ids(self, task: Task) -> list[int]:
        """The prompt as the model's own chat template wants it; without one, plain lines."""
        if not self.tokenizer.chat_template:
            lines = [line for line in (self.system_prompt, task.question) if line]
            return self._encode("\n\n".join(lines) + "\n")
        messages = [{"role": "user", "content": task.question}]
        if self.system_prompt:
            messages.insert(0, {"role": "system", "content": self.system_prompt})
        text = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return self._ids(self.tokenizer(text, add_special_tokens=False))

    def text_ids(self, text: str, *, finished: bool, limit: int) -> list[int]:
        """A completion that came as text, in this model's tokens, at most `limit` of them."""
        ids = self._encode(text, split_special_tokens=True)
        return ([*ids, self.end_ids[0]] if finished else ids)[:limit]

    def text(self, ids: Sequence[int]) -> str:
        """A completion as text, without its end token."""
        kept = ids[:-1] if ids and ids[-1] in self.end_ids else ids
        return str(self.tokenizer.decode(list(kept), skip_special_tokens=True))

    def _encode(self, text: str, **settings: bool) -> list[int]:
        return self._ids(self.tokenizer(text, add_special_tokens=False, **settings))

    @staticmethod
    def _ids(encoding: Any) -> list[int]:
        return list(encoding["input_ids"])


def load_model(name: str, *, device: str = "cpu", system_prompt: str | None = None) -> Model:
    """The shipped tiny model, a folder, or a name on the hub. No remote code, safetensors only."""
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    folder = TINY_FOLDER if name == TINY else Path(name)
    local = name == TINY or folder.is_dir()
    if not local and (name.startswith((".", "/", "~")) or name.count("/") > 1):
        raise MissingError(f"model folder {name} does not exist; name a folder, a hub model or {TINY!r}")
    where = str(folder) if local else name
    try:
        tokenizer = AutoTokenizer.from_pretrained(where, local_files_only=local)
        network: Any = AutoModelForCausalLM.from_pretrained(
            where, local_files_only=local, dtype=torch.float32, use_safetensors=True
        )
    except (OSError, ValueError, KeyError) as error:
        kind = ModelError if local else MissingError
        raise kind(f"model {name} cannot be loaded: {str(error).splitlines()[0]}") from error
    return _assemble(name, network.to(device), tokenizer, system_prompt)


def _assemble(name: str, network: Any, tokenizer: Any, system_prompt: str | None) -> Model:
    end_ids = _end_ids(network, tokenizer)
    if not end_ids:
        raise ModelError(
            f"model {name} has no end token, so its answers would never end; "
            "set eos_token in its tokenizer_config.json"
        )
    embeddings: Any = network.get_input_embeddings()
    vocabulary = int(embeddings.weight.shape[0])
    if len(tokenizer) > vocabulary:
        raise ModelError(
            f"model {name} has {vocabulary} embeddings but its tokenizer makes {len(tokenizer)} tokens; "
            "take the tokenizer that belongs to the model"
        )
    network.eval()  # no dropout: sampling and learning must see the same probabilities
    pad_id = tokenizer.pad_token_id
    return Model(
        name=name,
        network=network,
        tokenizer=tokenizer,
        system_prompt=SYSTEM_PROMPT if system_prompt is None else system_prompt,
        end_ids=end_ids,
        pad_id=end_ids[0] if pad_id is None else int(pad_id),
        window=int(getattr(network.config, "max_position_embeddings", 0) or 1 << 20),
    )


def _end_ids(network: PreTrainedModel, tokenizer: Any) -> tuple[int, ...]:
    """The tokenizer's end token first, then whatever else the model's settings end on (chat models: two)."""
    ids: list[int] = [] if tokenizer.eos_token_id is None else [int(tokenizer.eos_token_id)]
    extra: Any = getattr(network.generation_config, "eos_token_id", None)
    for end in extra if isinstance(extra, list) else [extra]:
        if end is not None and end not in ids:
            ids.append(int(end))
    return tuple(ids)
