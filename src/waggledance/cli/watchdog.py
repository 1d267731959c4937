"""The watchdog: says which phase a run is stuck in, and on which line, when nothing was told for too long.

It only looks. What is slow may be slow for a good reason, and a round that was ended halfway would be lost.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from waggledance.events import Stuck
from waggledance.journal import Journal

PACKAGE = Path(__file__).parents[1]


class Watchdog:
    def __init__(self, journal: Journal, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._journal = journal
        self._limit_s = limit_s
        self._clock = clock
        self._told = journal.told
        self._since = clock()
        self._barked = False

    def look(self, phase: str, thread: int | None) -> Stuck | None:
        """What to say about the thread that works, once each time it is stuck."""
        if self._journal.told != self._told:
            self._told, self._since, self._barked = self._journal.told, self._clock(), False
        lasted = self._clock() - self._since
        if self._barked or not self._limit_s or lasted < self._limit_s:
            return None
        self._barked = True
        stuck = Stuck(phase, where(_frame_of(thread)), lasted)
        self._journal.tell(stuck)
        self._told = self._journal.told
        return stuck


def _frame_of(thread: int | None) -> FrameType | None:
    frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage] - there is no other way to look
    return frames.get(thread or 0)


def where(frame: FrameType | None) -> str:
    """The innermost line of this package."""
    while frame is not None:
        file = Path(frame.f_code.co_filename)
        if file.is_relative_to(PACKAGE):
            return f"{file.relative_to(PACKAGE).as_posix()}:{frame.f_lineno} ({frame.f_code.co_name})"
        frame = frame.f_back
    return "no line of this package"
