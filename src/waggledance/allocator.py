"""Memory that was freed, given back to the operating system: glibc keeps it, in case it is wanted again.

What generation and a learner's last step leave behind would otherwise stand under the peak of the next pass.
"""

import ctypes
from collections.abc import Callable
from typing import Any


def _found() -> Callable[[int], int] | None:
    try:
        trim: Any = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # another C library, or none to be asked
        return None
    trim.argtypes, trim.restype = [ctypes.c_size_t], ctypes.c_int
    return trim


_TRIM = _found()


def give_back() -> bool:
    """Whether anything was there to give."""
    return bool(_TRIM and _TRIM(0))
