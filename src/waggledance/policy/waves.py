"""Completions that are drawn at the same time: as many as there is room for, fewer where memory runs out.

Places of questions and sizes come in, waves go out. Chances are drawn by row and step, so waves change
nothing but memory.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from waggledance.errors import lacks_memory


@dataclass(frozen=True, slots=True)
class Wave:
    places: tuple[int, ...]
    """Of the questions."""
    part: range
    """Of each question's completions."""

    def rows(self, completions: int) -> list[int]:
        return [place * completions + g for place in self.places for g in self.part]

    def halves(self) -> list["Wave"]:
        """Fewer questions or, of the only one, fewer completions; nothing where there is but one."""
        middle = len(self.places) // 2
        if middle:
            return [replace(self, places=part) for part in (self.places[:middle], self.places[middle:])]
        middle = len(self.part) // 2
        return [replace(self, part=part) for part in (self.part[:middle], self.part[middle:]) if middle]


class Room:
    """How many bytes of keys and values stand at a time; less from the day on that they did not fit."""

    def __init__(self, limit_bytes: int) -> None:
        self.bytes = limit_bytes

    def waves(
        self, places: Sequence[int], completions: int, needed_bytes: Callable[[Wave], int]
    ) -> list[Wave]:
        waves: list[Wave] = []
        for place in places:
            alone = Wave((place,), range(completions))
            wider = replace(waves[-1], places=(*waves[-1].places, place)) if waves else alone
            if waves and needed_bytes(wider) <= self.bytes:
                waves[-1] = wider
            else:
                waves.append(alone)
        return waves

    def halve(self, wave: Wave, needed_bytes: int, error: BaseException) -> list[Wave]:
        """Where memory was the trouble and there is something to halve; any other error goes on its way."""
        halves = wave.halves()
        if not lacks_memory(error) or not halves:
            raise error
        self.bytes = min(self.bytes, needed_bytes // 2)
        return halves
