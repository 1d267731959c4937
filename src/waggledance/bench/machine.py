"""The machine: what a figure was measured on, in one line that belongs beside it."""

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

from waggledance import __version__


def machine(*libraries: str) -> str:
    """Processor, system, versions and, where the package lies in a repository, its commit."""
    versions = [f"{library} {version(library)}" for library in libraries]
    return ", ".join(
        [
            f"{os.cpu_count()} × {_processor()}",
            f"{platform.system()} {platform.release().partition('-')[0]}",
            f"Python {platform.python_version()}",
            *versions,
            f"waggledance {__version__} at {_commit()}",
        ]
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _commit() -> str:
    """With a star where files were changed since."""
    try:
        said = subprocess.run(
            ("git", "describe", "--always", "--dirty=*", "--exclude=*"),  # noqa: S607 - whichever git is used here
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=False,
            timeout=10,
        )
    except OSError:
        return "an unknown commit"
    return said.stdout.strip() or "an unknown commit"
