"""Length: whether a text is needlessly long, beside what this node writes itself for tasks of the kind.

A right answer in ten times the words is likely word by word and passes for good; learned, it wastes every
later round. Lengths are characters: tokens differ from node to node.
"""

from collections import deque

from waggledance.task import SourceName

WINDOW_TEXTS = 256
USUAL_SHARE = 0.95
FACTOR = 2.0
LEAST_CHARACTERS = 64
"""Less than this is never too long."""
LEAST_TEXTS = 16
"""With fewer of a source's texts all that the node wrote count."""


class Lengths:
    def __init__(self) -> None:
        self._of: dict[SourceName, deque[int]] = {}
        self._all: deque[int] = deque(maxlen=WINDOW_TEXTS)

    def add_own(self, source: SourceName, text: str) -> None:
        self._of.setdefault(source, deque(maxlen=WINDOW_TEXTS)).append(len(text))
        self._all.append(len(text))

    def is_too_long(self, source: SourceName, text: str) -> bool:
        if not self._all or len(text) <= LEAST_CHARACTERS:
            return False
        own = self._of.get(source, ())
        ordered = sorted(own if len(own) >= LEAST_TEXTS else self._all)
        usual = ordered[min(len(ordered) - 1, int(USUAL_SHARE * len(ordered)))]
        return len(text) > FACTOR * usual
