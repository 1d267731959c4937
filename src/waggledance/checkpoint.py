"""A model on disk, written whole or not at all: a Hugging Face folder that loads anywhere.

It is written beside its place and then renamed, so a full disk leaves what was there before; so does a kill,
or else, between the two renames, a hidden folder beside it.
"""

# pyright: standard

import errno
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from safetensors import SafetensorError

from waggledance.errors import StorageError
from waggledance.model import Model


ROOM_BYTES = 1 << 20
"""For settings and the rest of the small files."""


def save_model(model: Model, folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise StorageError(f"cannot write the model to {folder}: it is a file; name a folder")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _check_room(model, folder)
        with TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as unfinished:
            _write(model, Path(unfinished) / "new")
            _replace(folder, Path(unfinished) / "new", Path(unfinished) / "old")
    except (OSError, SafetensorError) as error:
        # safetensors reports a full disk in an error of its own, with the system's words inside.
        if getattr(error, "errno", None) == errno.ENOSPC or "No space left" in str(error):
            raise _full(model, folder) from error
        raise StorageError(f"cannot write the model to {folder}: {error}; name another folder") from error


def _write(model: Model, folder: Path) -> None:
    model.network.save_pretrained(folder)
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


def _check_room(model: Model, folder: Path) -> None:
    """Before anything is written: the tokenizer's writer has no error of its own for a full disk."""
    if shutil.disk_usage(folder.parent).free < _weights_bytes(model) + ROOM_BYTES:
        raise _full(model, folder)


def _full(model: Model, folder: Path) -> StorageError:
    megabytes = (_weights_bytes(model) + ROOM_BYTES) / 1e6
    return StorageError(f"disk full: the model needs {megabytes:.0f} MB at {folder}; free some space")


def _weights_bytes(model: Model) -> int:
    return sum(weight.numel() * weight.element_size() for weight in model.network.parameters())
