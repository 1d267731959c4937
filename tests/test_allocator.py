"""Freed memory goes back to the operating system."""

import ctypes
import os
from pathlib import Path

import pytest

from waggledance.allocator import give_back

STATM = Path("/proc/self/statm")


def resident_bytes() -> int:
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="needs glibc")
@pytest.mark.skipif(not STATM.exists(), reason="needs Linux")
def test_what_was_freed_is_given_back() -> None:
    """Blocks too small to be the system's own, with one above them that stays: free does not return them."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = (
        ctypes.c_void_p,
        [ctypes.c_size_t],
        [ctypes.c_void_p],
    )
    size, count = 64 << 10, 1024
    blocks = [libc.malloc(size) for _ in range(count)]
    above = libc.malloc(size)
    for block in blocks:
        ctypes.memset(block, 1, size)
    for block in blocks:
        libc.free(block)
    before = resident_bytes()
    give_back()
    libc.free(above)
    assert resident_bytes() <= before - size * count // 2
    assert isinstance(give_back(), bool)
