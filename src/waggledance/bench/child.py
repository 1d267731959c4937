"""A child: a process that is told lines and answers with lines, and ends with its input.

It has a session of its own, so that a Ctrl-C is its parent's to handle, and whatever it started itself ends
with it.
"""

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from waggledance.errors import NodeError

PATIENCE_S = 120.0
"""How long one may take to start or to answer on a busy machine."""
LEAVE_S = 5.0


class Child:
    def __init__(self, name: str, command: Sequence[str], folder: Path) -> None:
        self._name = name
        self._log = folder / f"{name}.log"
        with self._log.open("wb") as said:
            self._process = subprocess.Popen(  # noqa: S603 - programs of this package, chosen by it
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                cwd=folder,
                bufsize=0,
                start_new_session=True,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._words, self._answers = self._process.stdin, self._process.stdout

    def tell(self, line: bytes) -> None:
        try:
            self._words.write(line + b"\n")
        except BrokenPipeError as error:
            raise NodeError(self._why()) from error

    def answer(self) -> bytes:
        """The next line: it speaks only when it is asked, so there is never more than one."""
        parts: list[bytes] = []
        deadline = time.monotonic() + PATIENCE_S
        while not (parts and parts[-1].endswith(b"\n")):
            ready = select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))[0]
            more = self._answers.read(1 << 20) if ready else None
            if not more:
                raise NodeError(self._why())
            parts.append(more)
        return b"".join(parts).rstrip(b"\n")

    def check(self) -> None:
        if self._process.poll() is not None:
            raise NodeError(self._why())

    def hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self._words.close()

    def wait(self, limit_s: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(limit_s)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._answers.close()

    def _why(self) -> str:
        self.wait(1.0)  # a broken pipe is seen a moment before the end
        code = self._process.returncode
        ended = "does not answer" if code is None else f"ended with code {code}"
        said = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        why = said[-1] if said else "it said nothing; is there memory for all? take fewer --nodes"
        return f"the process of {self._name} {ended}: {why}"


def end(children: Iterable[Child]) -> None:
    """All at once, and none is left."""
    leaving = list(children)
    for child in leaving:
        child.hang_up()
    deadline = time.monotonic() + LEAVE_S
    for child in leaving:
        child.wait(max(0.0, deadline - time.monotonic()))
    for child in leaving:
        child.kill()
