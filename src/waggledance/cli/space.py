"""Room on the disk, asked for before any work is done."""

import shutil
from pathlib import Path

from waggledance.errors import StorageError


def check_space(folder: Path, needed_bytes: int) -> None:
    place = folder.absolute()
    try:
        existing = next(path for path in (place, *place.parents) if path.exists())
        free = shutil.disk_usage(existing).free
    except OSError as error:
        raise StorageError(f"cannot use {folder}: {error.strerror}; name another with --dir") from error
    if free < needed_bytes:
        raise StorageError(
            f"disk full: {existing} has {free / 1e6:.0f} MB free, {needed_bytes / 1e6:.0f} MB are needed; "
            "free some space or name another folder with --dir"
        )
