"""What this process takes of its machine: memory and processor time, as the operating system counts them."""

import os
import resource
import sys
from pathlib import Path

from waggledance.events import Used

_PEAK_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024


def usage() -> Used:
    used = resource.getrusage(resource.RUSAGE_SELF)
    peak = used.ru_maxrss * _PEAK_UNIT_BYTES
    return Used(_resident_bytes(peak), peak, used.ru_utime + used.ru_stime)


def _resident_bytes(peak: int) -> int:
    """Where the system does not tell what is held just now, the most that ever was."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return peak
