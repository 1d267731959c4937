"""The cage: verification in worker processes that can do nothing but answer.

Groups go in, verdicts come out, in order. A worker that is late is killed, one that dies is replaced by a
spare that stands ready, and the groups after the one that did it go on: hostile text costs its own group and
at most the limit. It must not know what a task is about.
"""

import os
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from waggledance.errors import TaskError
from waggledance.seams import Failure, Pair, Verdict
from waggledance.verify.fence import Fence
from waggledance.verify.frames import ANSWER_LIMIT_BYTES, FORK, KILL, LENGTH, ORDER, job, read_answer
from waggledance.verify.rules import RULES

START_LIMIT_S = 180.0
"""The warden may have ReasoningGYM to import, on a busy machine."""
RETIRE_S = 20.0
"""After so much work a worker is replaced: its limit of processor time is for its whole life."""
END_LIMIT_S = 2.0
PATIENCE = 4
"""Limits that a worker has which the machine keeps waiting."""
WARDEN = "waggledance.verify.warden"


@dataclass(frozen=True, slots=True)
class Terms:
    """What hostile text may cost."""

    limit_s: float = 1.0
    """The longest that one group may take, and the most that groups which fail may cost in one call."""
    memory_bytes: int = 512 << 20


class Cage:
    """A verifier. `program` is the module whose workers judge, `words` what it is told at its start."""

    def __init__(self, terms: Terms | None = None, program: str = WARDEN, words: Sequence[str] = ()) -> None:
        self._terms = terms or Terms()
        self._program = (program, *words)
        self._lock = threading.Lock()
        self._warden: _Warden | None = None
        self._worker: _Worker | None = None

    @property
    def fence(self) -> Fence:
        """What stands around the workers; starts the warden if nothing has yet."""
        with self._lock:
            return self._here().fence()

    def verify(self, pairs: Sequence[Pair]) -> list[Verdict]:
        verdicts: list[Verdict] = []
        lost_s = 0.0
        with self._lock:
            while len(verdicts) < len(pairs):
                if lost_s >= self._terms.limit_s:
                    return verdicts + [Failure.UNTRIED] * (len(pairs) - len(verdicts))
                done, lost = self._try(pairs[len(verdicts) :])
                verdicts += done
                lost_s += lost
        return verdicts

    def close(self) -> None:
        with self._lock:
            self._leave()

    def _try(self, pairs: Sequence[Pair]) -> tuple[list[Verdict], float]:
        """Verdicts up to the first failure, and how long that one took."""
        worker = self._worker or self._here().worker()
        self._worker = worker
        verdicts, lost_s = worker.verify(pairs, self._terms.limit_s)
        strained = any(task.rule not in RULES for task, _ in pairs)  # a foreign scorer keeps what it likes
        if strained or lost_s or worker.worked_s > RETIRE_S:
            self._dismiss()
        return verdicts, lost_s

    def _dismiss(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None and self._warden is not None:
            self._warden.dismiss(worker)

    def _here(self) -> "_Warden":
        if self._warden is not None and not self._warden.alive:
            self._leave()
        if self._warden is None:
            self._warden = _Warden(self._program, self._terms)
        return self._warden

    def _leave(self) -> None:
        self._dismiss()
        if self._warden is not None:
            self._warden.close()
            self._warden = None


class _Warden:
    """The node's side of it: orders a worker ahead, so that one always stands ready."""

    def __init__(self, program: Sequence[str], terms: Terms) -> None:
        ours, theirs = socket.socketpair()
        ours.settimeout(START_LIMIT_S)
        cpu_s = int(RETIRE_S + terms.limit_s) + 2
        words = [str(theirs.fileno()), str(cpu_s), str(terms.memory_bytes), *program[1:]]
        with theirs:
            self._running = subprocess.Popen(  # noqa: S603 - this interpreter, and a module of our own
                [sys.executable, "-P", "-s", "-W", "ignore", "-m", program[0], *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=_environment(),
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is the node's alone to take
            )
        self._name = program[0]
        self._socket = ours
        self._fence: Fence | None = None
        self.close: Callable[[], object] = weakref.finalize(self, _end, ours, self._running)
        self._order()

    @property
    def alive(self) -> bool:
        return self._running.poll() is None

    def fence(self) -> Fence:
        """Told once, with the greeting."""
        if self._fence is None:
            stands, _ = self._hear()
            self._fence = Fence(bool(stands & 1), bool(stands & 2))
        return self._fence

    def worker(self) -> "_Worker":
        """The one that stands ready; the next is ordered at once."""
        self.fence()
        pid, descriptors = self._hear()
        if not descriptors:
            raise self._gone()
        self._order()
        return _Worker(pid, socket.socket(fileno=descriptors[0]))

    def dismiss(self, worker: "_Worker") -> None:
        worker.close()
        with suppress(OSError):
            self._socket.sendall(ORDER.pack(KILL, worker.pid))

    def _order(self) -> None:
        try:
            self._socket.sendall(ORDER.pack(FORK, 0))
        except OSError as error:
            raise self._gone() from error

    def _hear(self) -> tuple[int, list[int]]:
        """The number that came, and a descriptor where one came with it."""
        try:
            said, descriptors, _, _ = socket.recv_fds(self._socket, ORDER.size, 1)
        except OSError as error:
            raise self._gone() from error
        if len(said) != ORDER.size:
            raise self._gone()
        return ORDER.unpack(said)[1], descriptors

    def _gone(self) -> TaskError:
        return TaskError(
            f"the cage's warden ({self._name}) ended or said nothing within {START_LIMIT_S:g} s; "
            "set verify.kind to uncaged if this system cannot have one"
        )


class _Worker:
    def __init__(self, pid: int, spoken: socket.socket) -> None:
        self.pid = pid
        self.worked_s = 0.0
        self._socket = spoken
        self.close: Callable[[], object] = weakref.finalize(self, spoken.close)

    def verify(self, pairs: Sequence[Pair], limit_s: float) -> tuple[list[Verdict], float]:
        """Verdicts up to the first failure, and the seconds it took; fewer from a worker that retires."""
        verdicts: list[Verdict] = []
        before_s = _processor_s(self.pid)[0]
        for place, (_, texts) in enumerate(pairs):
            start = time.monotonic()
            due = _Due(self.pid, limit_s, before_s + limit_s / 2, start + limit_s)
            verdict = self._verdict(b"" if place else job(pairs), len(texts), due)
            took_s = time.monotonic() - start
            self.worked_s += took_s
            verdicts.append(verdict)
            if isinstance(verdict, Failure):
                return verdicts, took_s
            if self.worked_s > RETIRE_S:
                break
        return verdicts, 0.0

    def _verdict(self, said: bytes, texts: int, due: "_Due") -> Verdict:
        try:
            self._socket.settimeout(PATIENCE * due.left())
            self._socket.sendall(said)
            [size] = LENGTH.unpack(self._hear(LENGTH.size, due))
            if size > ANSWER_LIMIT_BYTES:
                return Failure.RAISED
            return read_answer(self._hear(size, due), texts)
        except TimeoutError:
            return Failure.TIMED_OUT
        except OSError:  # it has gone
            return Failure.KILLED

    def _hear(self, size: int, due: "_Due") -> bytes:
        heard = bytearray()
        while len(heard) < size:
            self._socket.settimeout(due.left())
            with suppress(TimeoutError):  # whether the time is up is not the socket's to say
                part = self._socket.recv(size - len(heard))
                if not part:
                    raise ConnectionResetError
                heard += part
        return bytes(heard)


@dataclass(slots=True)
class _Due:
    """When a group's time is up: by the wall clock, but for a worker that had to wait for the processor.

    Else an author would be blamed for a machine that does too much at a time.
    """

    pid: int
    limit_s: float
    worked_s: float
    """Of processor time: a worker that has had so much was not kept waiting."""
    until: float
    waited: int = 1

    def left(self) -> float:
        if self.until <= time.monotonic() and self.waited < PATIENCE and self._was_kept_waiting():
            self.until += self.limit_s
            self.waited += 1
        left = self.until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def _was_kept_waiting(self) -> bool:
        worked_s, wants_more = _processor_s(self.pid)
        return wants_more and worked_s < self.worked_s


def _processor_s(pid: int) -> tuple[float, bool]:
    """What a process has had, and whether it wants more just now; on Linux alone."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0, False
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK"), words[0] == "R"


def _environment() -> dict[str, str]:
    """Clean but for where this interpreter finds its modules; and libraries shall start no threads."""
    return {
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }


def _end(spoken: socket.socket, running: "subprocess.Popen[bytes]") -> None:
    spoken.close()  # the warden ends its workers, then itself
    try:
        running.wait(END_LIMIT_S)
    except subprocess.TimeoutExpired:
        running.kill()
        running.wait()
