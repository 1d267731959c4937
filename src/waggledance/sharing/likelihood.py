"""Likelihood: whether a text is one that this node's own model might have written.

It is measured by the model's surprise, in nats a token, over the whole text and over its most surprising
stretch: an honest newcomer surprises once, where it decides to answer in another way, and is plain from there
on; a planted phrase surprises at every word. How much surprise is usual is learned from the node's own text.
Pure: log-probabilities come in, from whoever can read.
"""

from collections import deque
from collections.abc import Iterable, Sequence

Line = Sequence[float]
"""The log-probability of each token of one text."""

STRETCH_TOKENS = 4
WINDOW_TEXTS = 256
"""Own texts that count; older ones were written by a model that is gone."""
USUAL_SHARE = 0.99
"""So many of its own texts surprise a model no more than usual."""
MARGIN = 2.0
"""Foreign text may surprise so many times as much: others know other things."""
LEAST_WHOLE_NATS, LEAST_STRETCH_NATS = 1.5, 4.0
"""Less surprise than this is always usual, however sure of itself a model has become."""


class Likelihood:
    def __init__(self) -> None:
        self._own: deque[tuple[float, float]] = deque(maxlen=WINDOW_TEXTS)

    def __len__(self) -> int:
        return len(self._own)

    def add_own(self, lines: Iterable[Line]) -> None:
        self._own.extend((whole(line), stretch(line)) for line in lines)

    def is_strange(self, line: Line) -> bool:
        """Nothing is strange to a node that has written nothing yet."""
        return bool(self._own) and self._is_beyond(MARGIN, line)

    def is_usual(self, line: Line) -> bool:
        """Whether it surprises no more than what the node writes itself."""
        return bool(self._own) and not self._is_beyond(1.0, line)

    def _is_beyond(self, margin: float, line: Line) -> bool:
        usual = [_quantile([pair[place] for pair in self._own], USUAL_SHARE) for place in (0, 1)]
        limit_whole = max(LEAST_WHOLE_NATS, margin * usual[0])
        limit_stretch = max(LEAST_STRETCH_NATS, margin * usual[1])
        return whole(line) > limit_whole or stretch(line) > limit_stretch


def whole(line: Line) -> float:
    """Nats a token over the whole text."""
    return -sum(line) / max(1, len(line))


def stretch(line: Line) -> float:
    """Nats a token over the most surprising stretch; a shorter text is a stretch that says nothing else."""
    sums = [0.0]
    for logprob in line:
        sums.append(sums[-1] - logprob)
    ends = zip(sums, sums[STRETCH_TOKENS:], strict=False)
    return max((end - start for start, end in ends), default=sums[-1]) / STRETCH_TOKENS


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
