"""The fence around a worker: what the system takes from a process before hostile text comes near it.

Limits hold everywhere. On Linux comes a network of its own without an interface and, on x86-64, a list of
the system calls that are left: read and write what is open, take memory, look at the clock, end. Opening a
file, a socket or a process is not among them, nor is a signal to anyone. What a system does not have is left
out and told, never assumed.
"""

import ctypes
import os
import platform
import resource
import signal
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

CLONE_NEWUSER, CLONE_NEWNET, CLONE_NEWIPC = 0x10000000, 0x40000000, 0x08000000
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
SECCOMP_MODE_FILTER = 2
AUDIT_ARCH_X86_64 = 0xC000003E
FILES_LIMIT = 16

ALLOWED_X86_64 = {
    "read": 0,
    "write": 1,
    "close": 3,
    "fstat": 5,
    "poll": 7,
    "lseek": 8,
    "mmap": 9,
    "mprotect": 10,
    "munmap": 11,
    "brk": 12,
    "rt_sigaction": 13,
    "rt_sigprocmask": 14,
    "rt_sigreturn": 15,
    "sched_yield": 24,
    "mremap": 25,
    "madvise": 28,
    "nanosleep": 35,
    "getpid": 39,
    "sendto": 44,
    "recvfrom": 45,
    "exit": 60,
    "uname": 63,
    "getrusage": 98,
    "times": 100,
    "getuid": 102,
    "getgid": 104,
    "geteuid": 107,
    "getegid": 108,
    "sigaltstack": 131,
    "gettid": 186,
    "futex": 202,
    "restart_syscall": 219,
    "clock_gettime": 228,
    "clock_nanosleep": 230,
    "exit_group": 231,
    "getrandom": 318,
}

# BPF: the words of a filter program, as <linux/filter.h> and <linux/seccomp.h> have them.
_LOAD, _JUMP_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER_AT, _ARCHITECTURE_AT = 0, 4
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050001, 0x80000000
"""Refuse is EPERM: Python makes an exception of it, and a scorer that tried gets no reward."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a worker may use up."""

    cpu_s: int
    memory_bytes: int
    """On top of what it holds when it is shut in."""


@dataclass(frozen=True, slots=True)
class Fence:
    """What stands on this machine, besides the limits."""

    network: bool
    """Workers have a network of their own, with nothing in it."""
    calls: bool
    """Workers are left the allowed system calls only."""

    def __str__(self) -> str:
        missing = [
            name
            for name, stands in (("network namespace", self.network), ("system call filter", self.calls))
            if not stands
        ]
        return f"limits; no {', no '.join(missing)} on this system" if missing else "whole"


def leave_the_network() -> bool:
    """Before anything starts a thread, and once: whoever is forked from here has no network either."""
    if sys.platform != "linux":
        return False
    flags = CLONE_NEWNET | CLONE_NEWIPC
    libc = _libc()
    return libc.unshare(flags) == 0 or libc.unshare(CLONE_NEWUSER | flags) == 0


def can_filter_calls() -> bool:
    """Tried out on a child: a filter cannot be taken off again."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    pid = os.fork()
    if pid == 0:
        try:
            _filter_calls()
            os._exit(0)
        except OSError:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


def shut_in(limits: Limits, *, calls: bool) -> None:
    """Shuts this process in for good."""
    end_with_parent()
    os.environ.clear()
    held = _address_space_bytes()
    for what, most in (
        (resource.RLIMIT_CPU, limits.cpu_s),
        (resource.RLIMIT_AS, held + limits.memory_bytes),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, FILES_LIMIT),
        (resource.RLIMIT_NPROC, 0),
    ):
        _limit(what, most)
    if sys.platform == "linux":
        _control(PR_SET_DUMPABLE, 0)
        _control(PR_SET_NO_NEW_PRIVS, 1)
    if calls:
        _filter_calls()


def end_with_parent() -> None:
    if sys.platform == "linux":
        _control(PR_SET_PDEATHSIG, signal.SIGKILL)


def _limit(what: int, most: int) -> None:
    """Never above what holds already."""
    _, hard = resource.getrlimit(what)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (most, most))


def _address_space_bytes() -> int:
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[0]
    except OSError:
        return 1 << 31
    return int(pages) * resource.getpagesize()


def _filter_calls() -> None:
    program = _program()
    words = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog: a count, padding, a pointer
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(words))
    _control(PR_SET_NO_NEW_PRIVS, 1)
    _control(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.create_string_buffer(header, len(header)))


def _program() -> bytes:
    """Another architecture's calls kill; a call on the list is allowed, any other refused."""
    numbers = sorted(ALLOWED_X86_64.values())
    lines = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_JUMP_EQUAL, 1, 0, AUDIT_ARCH_X86_64),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        *((_JUMP_EQUAL, len(numbers) - place, 0, number) for place, number in enumerate(numbers)),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("HBBI", *line) for line in lines)


def _control(option: int, first: object, second: object = 0) -> None:
    libc = _libc()
    arguments = [ctypes.c_ulong(word) if isinstance(word, int) else word for word in (first, second, 0, 0)]
    if libc.prctl(option, *arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl {option}: {os.strerror(code)}")


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
