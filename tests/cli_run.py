"""Commands run as a user runs them: real processes, each in a folder of its own by which all its offspring
can be found again."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, TypeVar

from waggledance.events import Entry
from waggledance.journal import JournalReader

PATIENCE_S = 60.0
"""How long a command may take on a busy machine."""
SCRIPTED = ("--policy.kind", "scripted", "--learner.kind", "none", "--tasks", "arithmetic")
LONE = (*SCRIPTED, "--swarm.kind", "none", "--dir", "run")
E = TypeVar("E")
ENDLESS = ("--rounds", "1000000000")


def environment() -> dict[str, str]:
    """The user's, without settings; where the test keeps its swarms stays."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("WAGGLE_")}
    return others | {"WAGGLE_HOME": os.environ["WAGGLE_HOME"]}


def waggle(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "waggledance", *words]
    return subprocess.run(
        command,
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
    )


@contextlib.contextmanager
def started(folder: Path, *words: str) -> "Generator[subprocess.Popen[str]]":
    """A command in a session of its own, its output in out.txt and err.txt; nothing of it is left behind."""
    with (folder / "out.txt").open("wb") as out, (folder / "err.txt").open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "waggledance", *words],
            cwd=folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            text=True,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pid in dwellers(folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)


def wait_until(true: Callable[[], bool], what: str, limit_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < deadline, f"not within {limit_s:g} s: {what}"
        time.sleep(0.02)


def dwellers(folder: Path) -> set[int]:
    """The processes whose working folder is this one: a command started there, and all its offspring."""
    pids: set[int] = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cwd").readlink() == folder.resolve():
                pids.add(int(process.name))
    return pids


def generator(folder: Path) -> int:
    """The process that makes the questions of the one node that lives there; others judge answers."""
    [pid] = [pid for pid in dwellers(folder) if b"waggledance.tasks.generator" in _words(pid)]
    return pid


def _words(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []  # it ended just now


def writer(file: Path) -> int:
    """The process that has this file open for writing."""
    for opened in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if opened.readlink() == file.resolve():
                about = opened.parent.with_name("fdinfo") / opened.name
                flags = int(about.read_text().partition("flags:")[2].split()[0], 8)
                if flags & os.O_ACCMODE == os.O_WRONLY:
                    return int(opened.parts[2])
    raise AssertionError(f"nobody writes {file}")


def entries(journal: Path) -> list[Entry]:
    reader = JournalReader(journal)
    try:
        return list(reader.entries())
    finally:
        reader.close()


def told(journal: Path, kind: type[E]) -> list[E]:
    """The events of one kind, in their order."""
    return [entry.event for entry in entries(journal) if isinstance(entry.event, kind)]


def error_line(text: str) -> str:
    """The one line that says what is wrong, after whatever progress was shown."""
    *_, last = text.splitlines() or [""]
    assert last.startswith("waggle: "), text
    assert "Traceback" not in text
    return last.removeprefix("waggle: ")


def fill(file: Path) -> None:
    with file.open("wb", buffering=0) as filler:
        try:
            while filler.write(bytes(4096)):
                pass
        except OSError:
            return


def loads(model: Path) -> None:
    """With plain transformers, as whoever is given the folder will."""
    import transformers

    auto: Any = transformers
    assert auto.AutoTokenizer.from_pretrained(model)("1 + 1")["input_ids"]
    auto.AutoModelForCausalLM.from_pretrained(model)
