"""An environment of its own for a peer to be measured beside: made from the package index when it is first
wanted, and kept in the user's cache."""

import os
import subprocess
import sys
import venv
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

from waggledance.errors import MissingError

READY = "ready.txt"
"""What is installed there; written last."""
PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input")


def hivemind_python(tell: Callable[[str], None]) -> Path:
    # The torch that is here already: without a word pip takes whatever build is newest and largest.
    return python_with("hivemind", ("hivemind==1.1.12", f"torch=={version('torch').partition('+')[0]}"), tell)


def python_with(name: str, wanted: Sequence[str], tell: Callable[[str], None]) -> Path:
    """The interpreter of an environment that has these."""
    folder = (
        Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "waggledance" / "bench" / name
    )
    python, ready = folder / "bin" / "python", folder / READY
    if not ready.exists() or ready.read_text(encoding="utf-8") != " ".join(wanted):
        tell(f"installing {' '.join(wanted)} into {folder}: minutes, once")
        venv.create(folder, with_pip=True, clear=True)
        _install(python, wanted)
        ready.write_text(" ".join(wanted), encoding="utf-8")
    return python


def _install(python: Path, wanted: Sequence[str]) -> None:
    done = subprocess.run(  # noqa: S603 - names and versions stand in this file
        (str(python), *PIP, "install", "--quiet", *wanted),
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        raise MissingError(f"cannot install {' '.join(wanted)}: {why}; is there a way to the package index?")
