"""Node processes of this machine, started and ended together. Nothing survives whoever started them.

Each child runs one node from the settings in its folder and writes its journal there. Torch and the tasks
are imported once, in a server from which the children fork; so sixteen nodes start in the time of one.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Generator, Sequence
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType

from waggledance.cli.assemble import open_place
from waggledance.cli.training import JOURNAL, SETTINGS, train
from waggledance.config import read_config
from waggledance.errors import NodeError, StorageError, WaggleError
from waggledance.journal import Journal

LOG = "log.txt"
"""What a node process says besides its journal: nothing, unless something is wrong."""
LEAVE_S = 5.0
"""How long a node that was told to stop may take before it is killed."""
PRELOADED = (
    "waggledance.learner.grpo",
    "waggledance.policy.hf",
    "waggledance.swarm.zenoh",
    "transformers.models.llama.modeling_llama",
    "reasoning_gym.factory",
)


class NodeProcesses:
    """Runs the nodes whose folders it is given; leaving the context ends them all."""

    def __init__(self, folders: Sequence[Path]) -> None:
        # Forking a process that has imported torch is safe on Linux alone.
        method = "forkserver" if sys.platform == "linux" else "spawn"
        self._context = multiprocessing.get_context(method)
        self._folders = list(folders)
        self._children: list[BaseProcess] = []
        self._lifelines: list[Connection] = []

    def __enter__(self) -> "NodeProcesses":
        with contextlib.ExitStack() as undo, _fixed_hashes():
            undo.callback(self._end)  # a Ctrl-C may come between two nodes
            if self._context.get_start_method() == "forkserver":
                _start_server()
            for folder in self._folders:
                self._start(folder)
            undo.pop_all()
        return self

    def _start(self, folder: Path) -> None:
        theirs, ours = self._context.Pipe(duplex=False)
        child = self._context.Process(target=_run_node, args=(folder, theirs), name=folder.name)
        child.start()
        theirs.close()
        self._children.append(child)
        self._lifelines.append(ours)

    def running(self) -> bool:
        """Whether any node still works; a node that ended otherwise than well is an error."""
        codes = [child.exitcode for child in self._children]
        for code, folder in zip(codes, self._folders, strict=True):
            if code:
                node = f"{folder.parent.name}/{folder.name}"
                kind = StorageError if code == StorageError.exit_code else NodeError
                raise kind(f"node {node} {_ended(code)}; {_why(folder, code)}")
        return None in codes

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        for child in self._children:
            child.terminate()
        deadline = time.monotonic() + LEAVE_S
        for child in self._children:
            child.join(max(0.0, deadline - time.monotonic()))
        for child in self._children:
            child.kill()
            child.join()
        for lifeline in self._lifelines:
            lifeline.close()


@contextlib.contextmanager
def _fixed_hashes() -> Generator[None]:
    """Children with fixed string hashes make their tasks themselves and need no generator beside them."""
    before = os.environ.get("PYTHONHASHSEED")
    os.environ["PYTHONHASHSEED"] = "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONHASHSEED"]
        else:
            os.environ["PYTHONHASHSEED"] = before


def _start_server() -> None:
    """The server and its children are deaf to Ctrl-C from their first moment, seconds of imports included.

    They inherit that it is blocked; here it waits until the server is on its way.
    """
    forkserver.set_forkserver_preload(list(PRELOADED))
    resource_tracker.ensure_running()  # first, because it unblocks
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _ended(code: int) -> str:
    if code == -signal.SIGKILL:
        return "was killed, by somebody or for want of memory"
    return f"ended with code {code}"


def _why(folder: Path, code: int) -> str:
    log = folder / LOG
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() if log.exists() else []
    if lines:
        return lines[-1]
    if code == StorageError.exit_code:  # no room for the log either
        return f"no space is left at {folder}; free some space"
    return f"its log {log} is empty"


def _run_node(folder: Path, lifeline: Connection) -> None:
    """The child: a node and nothing else. Its parent's Ctrl-C is its parent's to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    threading.Thread(target=_end_with_parent, args=(lifeline,), daemon=True).start()
    log = os.open(folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, sys.stdout.fileno())
    os.dup2(log, sys.stderr.fileno())
    config = read_config(folder / SETTINGS)
    place = open_place(config, folder)
    journal = Journal(place.author, time.time, folder / JOURNAL)
    try:
        train(config, place, journal, stop.is_set)
    except WaggleError as error:
        # Not print: what a full disk does not take would be tried again on the way out, and fail there.
        with contextlib.suppress(OSError):
            os.write(log, f"{error}\n".encode(errors="backslashreplace"))
        sys.exit(error.exit_code)
    finally:
        journal.close()


def _end_with_parent(lifeline: Connection) -> None:
    """Nothing is ever sent: the pipe ends when the parent does, however it does."""
    try:
        lifeline.recv_bytes()
    except (EOFError, OSError):
        os._exit(1)
