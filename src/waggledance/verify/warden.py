"""The warden: a small clean process that forks workers into the cage and never reads what they read.

A node orders workers from it and speaks with them over a socket of their own. It ends when the node does, and
its workers end with it. `python -m waggledance.verify.warden` keeps workers that judge by our own rules;
`waggledance.tasks.judge` adds ReasoningGYM's.
"""

import gc
import os
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from signal import SIGKILL

from waggledance.seams import Failure, Verdict
from waggledance.task import Task
from waggledance.verify.fence import Fence, Limits, can_filter_calls, leave_the_network, shut_in
from waggledance.verify.frames import FORK, LENGTH, ORDER, answer, read_job
from waggledance.verify.verdict import Judge, verify

GREETING = b"g"
"""Comes with 1 for the network and 2 for the calls."""


def main(arguments: Sequence[str]) -> None:
    network = leave_the_network()
    keep(verify, arguments, network=network)


def keep(judge: Judge, arguments: Sequence[str], *, network: bool) -> None:
    """Forks a worker for every order until the node is gone."""
    descriptor, cpu_s, memory_bytes = map(int, arguments[:3])
    limits = Limits(cpu_s, memory_bytes)
    fence = Fence(network, can_filter_calls())
    gc.freeze()  # what is here now is shared with the workers: a collection must not write into it
    workers: set[int] = set()
    with socket.socket(fileno=descriptor) as node:
        try:
            node.sendall(ORDER.pack(GREETING, fence.network + 2 * fence.calls))
            while order := _received(node, ORDER.size):
                letter, number = ORDER.unpack(order)
                _bury(workers)
                if letter == FORK:
                    _fork(judge, node, workers, limits, fence)
                elif number in workers:
                    os.kill(number, SIGKILL)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the node has gone: so do we
        finally:
            for worker in workers:
                with suppress(ProcessLookupError):
                    os.kill(worker, SIGKILL)


def _fork(judge: Judge, node: socket.socket, workers: set[int], limits: Limits, fence: Fence) -> None:
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        node.close()
        ours.close()
        _work(judge, theirs, limits, fence)
    theirs.close()
    workers.add(pid)
    with ours:
        socket.send_fds(node, [ORDER.pack(FORK, pid)], [ours.fileno()])


def _bury(workers: set[int]) -> None:
    """Whoever ended. No number of a living one is ever another's: only here are they let go."""
    while workers:
        pid, _ = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        workers.discard(pid)


def _work(judge: Judge, node: socket.socket, limits: Limits, fence: Fence) -> None:
    """A worker: judges what it is sent until nothing comes any more."""
    try:
        os.dup2(1, 2)  # the null device: what a scorer prints is nobody's
        shut_in(limits, calls=fence.calls)
        while length := _received(node, LENGTH.size):
            [size] = LENGTH.unpack(length)
            for task, texts in read_job(_received(node, size)):
                node.sendall(answer(_judged(judge, task, texts)))
    finally:
        os._exit(0)


def _judged(judge: Judge, task: Task, texts: Sequence[str]) -> Verdict:
    try:
        return judge(task, texts)
    except BaseException:  # noqa: BLE001 - the verifier's boundary: whatever an answer made the judge raise
        return Failure.RAISED


def _received(peer: socket.socket, size: int) -> bytes:
    """So many bytes; none where the other end has gone."""
    content = bytearray()
    while len(content) < size:
        try:
            part = peer.recv(min(size - len(content), 1 << 20))
        except ConnectionResetError:  # it went without reading what was said last
            return b""
        if not part:
            return b""
        content += part
    return bytes(content)


if __name__ == "__main__":
    main(sys.argv[1:])
