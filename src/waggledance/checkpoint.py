"""A model on disk, written whole or not at all: a Hugging Face folder that loads anywhere.

It is written beside its place and then renamed, so a full disk leaves what was there before. A kill does so
too; between the two renames it leaves it in a hidden folder beside its place.
"""

# pyright: standard

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from waggledance.adapter import is_adapted, merged_weights
from waggledance.errors import StorageError
from waggledance.model import Model


def save_model(model: Model, folder: Path, texts: Mapping[str, str] | None = None) -> None:
    """With whatever texts belong beside it, by name."""
    if folder.exists() and not folder.is_dir():
        raise StorageError(f"cannot write the model to {folder}: it is a file; name a folder")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(
            prefix=f".{folder.name}.", dir=folder.parent, ignore_cleanup_errors=True
        ) as beside:
            _write(model, Path(beside) / "new")
            for name, text in (texts or {}).items():
                (Path(beside) / "new" / name).write_text(text, encoding="utf-8")
            _replace(folder, Path(beside) / "new", Path(beside) / "old")
    except (OSError, SafetensorError) as error:
        # safetensors reports a full disk in an error of its own, with the system's words inside.
        if getattr(error, "errno", None) == errno.ENOSPC or "No space left" in str(error):
            raise StorageError(
                f"disk full: the model needs {_megabytes(model):.0f} MB at {folder}; free some space"
            ) from error
        raise StorageError(f"cannot write the model to {folder}: {error}; name another folder") from error


def _write(model: Model, folder: Path) -> None:
    # An adapter goes in with the rest, so that the folder is a model like any other.
    merged = merged_weights(model.network) if is_adapted(model.network) else None
    model.network.save_pretrained(folder, state_dict=merged)
    backend = getattr(model.tokenizer, "backend_tokenizer", None)
    if backend is not None:
        # Python's writer goes first: the tokenizer's own has no error to catch for a full disk.
        (folder / "tokenizer.json").write_text(backend.to_str(pretty=True), encoding="utf-8")
    model.tokenizer.save_pretrained(folder)
    for file in folder.iterdir():
        file.chmod(0o644)  # safetensors writes files that only their owner may read


def _replace(folder: Path, new: Path, old: Path) -> None:
    if folder.exists():
        folder.rename(old)
    try:
        new.rename(folder)
    except OSError:
        if old.exists():
            old.rename(folder)
        raise


def _megabytes(model: Model) -> float:
    return sum(weight.numel() * weight.element_size() for weight in model.network.parameters()) / 1e6


def write_tensors(file: Path, tensors: Mapping[str, Tensor]) -> None:
    """OSError where they find no room: safetensors has an error of its own for that."""
    try:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, file)
    except SafetensorError as error:
        number = errno.ENOSPC if "No space left" in str(error) else errno.EIO
        raise OSError(number, os.strerror(number)) from error


def read_tensors(file: Path) -> dict[str, Tensor]:
    try:
        return load_file(file)
    except SafetensorError as error:
        raise StorageError(f"{file} cannot be read: {error}; the one before it may be whole") from error
