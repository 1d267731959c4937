"""A model on disk, written whole or not at all: a Hugging Face folder that loads anywhere.

It is written beside its place and then renamed, so a kill or a full disk leaves what was there before.
"""

# pyright: standard

import errno
import shutil
from pathlib import Path
from tempfile import mkdtemp

from safetensors import SafetensorError

from waggledance.errors import StorageError
from waggledance.model import Model


def save_model(model: Model, folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        model.network.save_pretrained(unfinished)
        model.tokenizer.save_pretrained(unfinished)
        unfinished.chmod(0o755)  # temporary folders are private, and so are the files that safetensors writes
        for file in unfinished.iterdir():
            file.chmod(0o644)
        if folder.exists():
            shutil.rmtree(folder)
        unfinished.rename(folder)
    except (OSError, SafetensorError) as error:
        # safetensors reports a full disk in an error of its own, with the system's words inside.
        if getattr(error, "errno", None) == errno.ENOSPC or "No space left" in str(error):
            raise StorageError(
                f"disk full: the model needs {_megabytes(model):.0f} MB at {folder}; free some space"
            ) from error
        raise StorageError(f"cannot write the model to {folder}: {error}") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _megabytes(model: Model) -> float:
    return sum(weight.numel() * weight.element_size() for weight in model.network.parameters()) / 1e6
