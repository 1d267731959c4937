"""The generator's parent side: items from a child interpreter whose string hashes are fixed.

The child starts with the first item, lives in its own session so that Ctrl-C is the parent's alone to
take, and ends when its standard input does. One that is late or gone is an error that names the item;
the next item starts another.
"""

import os
import select
import subprocess
import sys
import threading
import time
import weakref

import msgspec

from waggledance.errors import TaskError
from waggledance.tasks.item import Failure, Item, Maker, Wanted

LIMIT_S = 10.0
START_LIMIT_S = 60.0
"""On top for the first item: the child imports ReasoningGYM and the machine may be busy."""


def open_maker() -> Maker:
    """Items made here if this interpreter's string hashes are fixed, else by a child."""
    # Not os.environ: what counts is how the interpreter started.
    if sys.flags.hash_randomization:
        return Child()
    from waggledance.tasks.generator import Generator

    return Generator()


class Child:
    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._lock = threading.Lock()
        self._running: subprocess.Popen[bytes] | None = None
        self._end = weakref.finalize(self, lambda: None)

    def make(self, recipe: str, index: int) -> Item:
        with self._lock:
            limit_s = self._limit_s + (START_LIMIT_S if self._running is None else 0.0)
            line = _ask(self._child(), Wanted(recipe, index), limit_s)
            if not line.endswith(b"\n"):
                self._end()
                self._running = None
                raise TaskError(
                    f"{recipe} {index}: the task generator ended or gave nothing within {limit_s:g} s; "
                    "to see why, run `PYTHONHASHSEED=0 python -m waggledance.tasks.generator`"
                )
        reply = msgspec.json.decode(line, type=Item | Failure)
        if isinstance(reply, Failure):
            raise TaskError(reply.reason)
        return reply

    def _child(self) -> subprocess.Popen[bytes]:
        if self._running is None:
            self._running = _start()
            self._end = weakref.finalize(self, _stop, self._running)
        return self._running


def _start() -> subprocess.Popen[bytes]:
    # A clean environment but for where this interpreter finds its modules; -P keeps the working folder out.
    environment = {"PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(
        [sys.executable, "-P", "-W", "ignore", "-m", "waggledance.tasks.generator"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        env=environment,
        start_new_session=True,
    )


def _stop(child: subprocess.Popen[bytes]) -> None:
    child.kill()  # it holds nothing that could be lost
    child.wait()
    for pipe in (child.stdin, child.stdout):
        assert pipe is not None
        pipe.close()


def _ask(child: subprocess.Popen[bytes], wanted: Wanted, limit_s: float) -> bytes:
    """The child's line; whatever came of it if the child ended or the time was up."""
    assert child.stdin is not None
    assert child.stdout is not None
    deadline = time.monotonic() + limit_s
    line = b""
    try:
        child.stdin.write(msgspec.json.encode(wanted) + b"\n")
    except BrokenPipeError:
        return line
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([child.stdout], [], [], max(0.0, deadline - time.monotonic()))
        part = os.read(child.stdout.fileno(), 1 << 16) if ready else b""
        if not part:
            break
        line += part
    return line
