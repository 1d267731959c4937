"""Workers whose judge does whatever the answer says: what a hostile answer could do if it got that far.

`python -m misjudge` is a warden; `Cage(program="misjudge")` starts it. Every answer names a deed below, and
is paid 1 if the deed was done, 0 if the system refused it.
"""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from waggledance.task import Task
from waggledance.verify import extract
from waggledance.verify.fence import leave_the_network
from waggledance.verify.warden import keep


def write_file(where: str) -> None:
    Path(where).write_text("was here", encoding="utf-8")


def read_file(where: str) -> None:
    Path(where).read_bytes()


def make_folder(where: str) -> None:
    Path(where).mkdir()


def remove_file(where: str) -> None:
    Path(where).unlink()


def rename_file(where: str) -> None:
    Path(where).rename(where + ".moved")


def open_up_file(where: str) -> None:
    Path(where).chmod(0o777)


def link_file(where: str) -> None:
    Path(where + ".link").symlink_to(where)


def dial(where: str) -> None:
    host, port = where.split(":")
    with socket.socket() as link:
        link.connect((host, int(port)))


def dial_by_file(where: str) -> None:
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(where)


def listen(where: str) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))


def start_program(where: str) -> None:
    subprocess.run(["/bin/sh", "-c", f"echo was here > {where}"], check=True)


def become_program(where: str) -> None:
    os.execv("/bin/sh", ["sh", "-c", f"echo was here > {where}"])  # noqa: S606


def fork(where: str) -> None:
    if os.fork() == 0:
        os._exit(0)


def start_thread(where: str) -> None:
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()


def signal_another(where: str) -> None:
    os.kill(int(where), signal.SIGTERM)


def raise_limits(where: str) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))


def trace_another(where: str) -> None:
    if ctypes.CDLL(None).ptrace(16, int(where), 0, 0) != 0:  # attach
        raise OSError


def read_environment(where: str) -> None:
    if not os.environ:
        raise OSError


def loop(where: str) -> None:
    while True:
        pass


def sleep(where: str) -> None:
    time.sleep(3600)


def eat_memory(where: str) -> None:
    held = [bytes(1 << 26) for _ in range(1 << 10)]
    assert held


def count_far(where: str) -> None:
    assert 9 ** (9**9)


def nest_deep(where: str) -> None:
    def deeper(depth: int) -> int:
        return deeper(depth + 1) + 1

    deeper(0)


def break_stack(where: str) -> None:
    ctypes.string_at(0)


def leave(where: str) -> None:
    sys.exit(0)


def leave_at_once(where: str) -> None:
    os._exit(0)


def lie_in_shape(where: str) -> None:
    raise KeyboardInterrupt


def pay_too_much(where: str) -> float:
    return 1e9


def pay_nan(where: str) -> float:
    return float("nan")


DEEDS: dict[str, Callable[[str], float | None]] = {
    deed.__name__: deed
    for deed in (
        *(write_file, read_file, make_folder, remove_file, rename_file, open_up_file, link_file),
        *(dial, dial_by_file, listen, start_program, become_program, fork, start_thread),
        *(signal_another, raise_limits, trace_another, read_environment),
        *(loop, sleep, eat_memory, count_far, nest_deep, break_stack, leave, leave_at_once),
        *(lie_in_shape, pay_too_much, pay_nan),
    )
}


def judge(task: Task, texts: Sequence[str]) -> tuple[float, ...]:
    return tuple(_paid(extract(text) or "") for text in texts)


def _paid(answer: str) -> float:
    deed, _, where = answer.partition(" ")
    if deed not in DEEDS:
        return float(answer == "right")
    try:
        paid = DEEDS[deed](where)
    except (OSError, RuntimeError, ValueError):  # as the system's refusals of threads and limits come
        return 0.0
    return 1.0 if paid is None else paid


if __name__ == "__main__":
    inside = leave_the_network()
    keep(judge, sys.argv[1:], network=inside)
