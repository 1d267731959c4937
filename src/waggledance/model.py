"""A node's language model: weights, tokenizer, and how text becomes tokens.

Policy and learner share one of these, so both see the same prompt for a task. Foreign text is encoded
without special tokens: whatever a peer writes, its text can never become an end token or a chat role.
"""

# pyright: standard

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any, cast
from urllib.parse import urlsplit
from urllib.request import getproxies

import torch
from huggingface_hub import constants, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, StrictDataclassError
from jinja2 import TemplateError
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.utils import logging as transformers_logging

from waggledance.errors import MissingError, ModelError, UsageError
from waggledance.forward import halve_products, proof_of
from waggledance.kernels import install
from waggledance.prompt import SYSTEM_PROMPT
from waggledance.smollm2 import SMOLLM2, smollm2_folder
from waggledance.task import Task

TINY = "tiny"
TINY_FOLDER = Path(__file__).parent / "tiny"

HUB_TIMEOUT_S = 5.0
HUB_FILES = ["*.json", "*.jinja", "*.model", "*.txt", "*.safetensors"]
"""What is fetched of a hub model: no pickles and no code, so that there is none to run."""
TRANSPORT_ERROR = cast("type[Exception]", HfHubHTTPError.__bases__[0])
"""The HTTP library's error: which library that is hangs on the version of the hub's."""
UNREADABLE = (
    ArithmeticError,
    KeyError,
    OSError,
    RuntimeError,
    SafetensorError,
    StrictDataclassError,
    TypeError,
    ValueError,
)
"""What transformers raises over files that are no model: a truncated one, an impossible setting."""


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

    @property
    def objection(self) -> str:
        """Why it cannot compute a prompt once for all of its completions; empty: it can."""
        return proof_of(self.network).objection

    def prompt_ids(self, task: Task) -> list[int]:
        """The prompt as the model's own chat template wants it; without one, plain lines."""
        lines = [line for line in (self.system_prompt, task.question) if line]
        if not self.tokenizer.chat_template:
            ids = self._encode("\n\n".join(lines) + "\n", add_special_tokens=True)
            return ids[:-1] if ids and ids[-1] in self.end_ids else ids
        messages = [{"role": "user", "content": task.question}]
        if not self.system_prompt:
            return self._templated(messages)
        try:
            return self._templated([{"role": "system", "content": self.system_prompt}, *messages])
        except ModelError:  # some templates refuse a system role
            return self._templated([{"role": "user", "content": "\n\n".join(lines)}])

    def text_ids(self, text: str, *, finished: bool) -> list[int]:
        """A completion that came as text, in this model's tokens."""
        # Some tokenizers know the strings of special tokens as plain words, too.
        special = set(self.tokenizer.all_special_ids)
        ids = [i for i in self._encode(text, split_special_tokens=True) if i not in special]
        return [*ids, self.end_ids[0]] if finished else ids

    def text(self, ids: Sequence[int]) -> str:
        """A completion as text, without its end token."""
        kept = ids[:-1] if ids and ids[-1] in self.end_ids else ids
        return str(self.tokenizer.decode(list(kept), skip_special_tokens=True))

    def _templated(self, messages: list[dict[str, str]]) -> list[int]:
        try:
            text = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        except TemplateError as error:
            raise ModelError(
                f"model {self.name} has a chat template that fails: {_in_a_line(error)}; mend or remove it"
            ) from error
        return self._encode(text)

    def _encode(self, text: str, *, add_special_tokens: bool = False, **settings: bool) -> list[int]:
        sound = text.encode("utf-8", "replace").decode("utf-8")  # tokenizers refuse lone surrogates
        encoding = self.tokenizer(sound, add_special_tokens=add_special_tokens, **settings)
        return list(encoding["input_ids"])


def load_model(
    name: str, *, device: str = "cpu", system_prompt: str | None = None, precision: str = "float32"
) -> Model:
    """The shipped tiny model, SmolLM2 from the package index, a folder, or a name on the hub. No remote code,
    safetensors only."""
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    _check_device(device)
    folder = _folder(name)
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder,
            local_files_only=True,
            trust_remote_code=False,  # left open, transformers would ask at the terminal
            use_safetensors=True,
            dtype=torch.float32,
            output_loading_info=True,
        )
    except UNREADABLE as error:
        raise ModelError(
            f"model {name} cannot be loaded: {_in_a_line(error)}; name a folder with config.json, "
            "tokenizer.json and model.safetensors"
        ) from error
    network, report = loaded
    lacking = sorted(report["missing_keys"])
    if lacking:
        raise ModelError(
            f"model {name} lacks {len(lacking)} of its weights, {lacking[0]} for one; fetch its files again"
        )
    model = _assemble(name, network.to(device), tokenizer, system_prompt)
    if precision == "bfloat16":
        halve_products(model.network)
    return model


def _check_device(device: str) -> None:
    try:
        torch.empty(0, device=device)
    except (AssertionError, RuntimeError) as error:  # torch asserts that it was built with CUDA
        raise UsageError(f"device {device} cannot be used: {_in_a_line(error)}; cpu always can") from error


def _folder(name: str) -> Path:
    """Where a model's files are; what is not here yet is fetched."""
    if name == TINY:
        return TINY_FOLDER
    if name == SMOLLM2:
        return smollm2_folder()
    folder = os.path.expanduser(name)
    if os.path.isdir(folder):
        return Path(folder)
    if os.path.exists(folder):
        raise ModelError(f"model {name} is a file; name the folder that holds it")
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise MissingError(f"model folder {name} does not exist; name a folder, a hub model or {TINY!r}")
    try:
        return Path(snapshot_download(name, allow_patterns=HUB_FILES, local_files_only=True))
    except LocalEntryNotFoundError:
        return _fetched(name)
    except ValueError as error:
        raise MissingError(
            f"model {name!r} is neither a folder here nor a name on the hub; name a folder or {TINY!r}"
        ) from error


def _fetched(name: str) -> Path:
    """Asks first whether the hub answers at all: its own library tries for most of a minute."""
    hub = urlsplit(constants.ENDPOINT)
    try:
        if not getproxies():
            port = hub.port or (80 if hub.scheme == "http" else 443)
            socket.create_connection((hub.hostname or "", port), HUB_TIMEOUT_S).close()
        return Path(snapshot_download(name, allow_patterns=HUB_FILES, etag_timeout=HUB_TIMEOUT_S))
    except (OSError, TRANSPORT_ERROR) as error:
        raise MissingError(
            f"model {name} is no folder here and does not come from {hub.hostname} "
            f"({_in_a_line(error)}); name a folder or {TINY!r}"
        ) from error


def _in_a_line(error: BaseException) -> str:
    return shorten(str(error) or type(error).__name__, 200, placeholder=" …").rstrip(".:")


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
    install(network)
    network.eval()  # no dropout: sampling and learning must see the same probabilities
    pad_id = tokenizer.pad_token_id
    return Model(
        name=name,
        network=network,
        tokenizer=tokenizer,
        system_prompt=SYSTEM_PROMPT if system_prompt is None else system_prompt,
        end_ids=end_ids,
        pad_id=end_ids[0] if pad_id is None else int(pad_id),
        window=int(getattr(network.config.get_text_config(), "max_position_embeddings", 0) or 1 << 20),
    )


def _end_ids(network: PreTrainedModel, tokenizer: Any) -> tuple[int, ...]:
    """The tokenizer's end token first, then whatever else the model's settings end on (chat models: two)."""
    ids: list[int] = [] if tokenizer.eos_token_id is None else [int(tokenizer.eos_token_id)]
    extra: Any = getattr(network.generation_config, "eos_token_id", None)
    for end in extra if isinstance(extra, list) else [extra]:
        if end is not None and end not in ids:
            ids.append(int(end))
    return tuple(ids)
