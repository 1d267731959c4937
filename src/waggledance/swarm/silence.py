"""Silence: how long the kernel keeps a link on which nothing is acknowledged any more.

Zenoh gives a link up when its lease is over, but not while a write to it waits, and the kernel lets one
wait for a quarter of an hour: a node would stay with a router whose machine is gone, and would count the lost
among those who are here. So the sockets are told the same limit. Linux can; elsewhere nothing is done.
"""

import errno
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

OPEN_FILES = Path("/proc/self/fd")
TCP_USER_TIMEOUT = getattr(socket, "TCP_USER_TIMEOUT", None)


def bound_silence(here: str, there: str, limit_ms: int) -> bool:
    """Tells the socket of a link between two endpoints; says whether there is one."""
    if TCP_USER_TIMEOUT is None or not OPEN_FILES.is_dir():
        return False
    ends = (_address(here), _address(there))
    for name in os.listdir(OPEN_FILES):
        with suppress(OSError), _held(int(name)) as held:
            if (
                held.type == socket.SOCK_STREAM
                and (_end(held.getsockname()), _end(held.getpeername())) == ends
            ):
                held.setsockopt(socket.IPPROTO_TCP, TCP_USER_TIMEOUT, limit_ms)
                return True
    return False


def _held(file: int) -> socket.socket:
    """A copy to look at: files come and go meanwhile on other threads. OSError where it is no socket."""
    if not stat.S_ISSOCK(os.fstat(file).st_mode):
        raise OSError(errno.ENOTSOCK, os.strerror(errno.ENOTSOCK))
    copy = os.dup(file)
    try:
        return socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise


def _address(endpoint: str) -> tuple[str, str]:
    host, _, port = endpoint.partition("/")[2].partition("#")[0].partition("?")[0].rpartition(":")
    return host.strip("[]").removeprefix("::ffff:"), port


def _end(name: Any) -> tuple[str, str]:
    """What a socket says of one of its ends; those of other families are text."""
    return ("", "") if isinstance(name, str) else (str(name[0]).removeprefix("::ffff:"), str(name[1]))
