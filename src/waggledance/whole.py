"""A file that people look at, written whole or not at all: a picture, a report, a result."""

import os
import tempfile
from pathlib import Path

from waggledance.errors import StorageError


def write_whole(path: Path, content: bytes, what: str) -> None:
    """Beside its place first and then over it, so that nobody ever sees half of it. `what` is its name in an
    error."""
    try:
        handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            Path(draft).chmod(0o644)
            Path(draft).replace(path)
        finally:
            Path(draft).unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(
            f"{what} {path} cannot be written: {error.strerror}; free some space or name another folder"
        ) from error
