"""Token buckets: how many messages a second are worth opening, before a byte of them is looked at.

Who sends is known by then from the key alone, which anybody may write. So there is a bucket for each author
that has proven its key before, one for all strangers together, and one for everybody: what overflows is
counted and gone, and costs neither a signature's check nor a place in the mailbox.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from waggledance.rollout import Author

LIMIT_AUTHORS = 4096
"""Buckets kept for authors; who was heard longest ago becomes a stranger again."""


@dataclass(frozen=True, slots=True)
class Flow:
    """So many at once, and so many a second in the long run."""

    burst: float
    per_s: float


class Bucket:
    def __init__(self, flow: Flow, now_s: float) -> None:
        self._flow = flow
        self._tokens = flow.burst
        self._at_s = now_s

    def has(self, now_s: float) -> bool:
        self._tokens = min(self._flow.burst, self._tokens + (now_s - self._at_s) * self._flow.per_s)
        self._at_s = now_s
        return self._tokens >= 1

    def take(self) -> None:
        self._tokens -= 1


@dataclass(frozen=True, slots=True)
class Flows:
    author: Flow = Flow(burst=128, per_s=16)
    strangers: Flow = Flow(burst=256, per_s=32)
    everybody: Flow = Flow(burst=1024, per_s=256)
    """Opening a message costs about a tenth of a millisecond: these take a fortieth of a core."""


class Buckets:
    """Asked by the network's threads, told by the node's own."""

    def __init__(self, flows: Flows, stopwatch: Callable[[], float]) -> None:
        self._flows = flows
        self._stopwatch = stopwatch
        self._lock = threading.Lock()
        self._everybody = Bucket(flows.everybody, stopwatch())
        self._strangers = Bucket(flows.strangers, stopwatch())
        self._known: OrderedDict[Author, Bucket] = OrderedDict()

    def admits(self, author: Author | None) -> bool:
        """Whether a message that claims to be the author's may come in; if so it is counted."""
        with self._lock:
            now_s = self._stopwatch()
            bucket = self._strangers if author is None else self._known.get(author, self._strangers)
            # Both are asked before either is taken from: what one refuses costs the others nothing.
            if not (bucket.has(now_s) and self._everybody.has(now_s)):
                return False
            bucket.take()
            self._everybody.take()
            return True

    def know(self, author: Author) -> None:
        """A message proved that the author's key is its own."""
        with self._lock:
            if author in self._known:
                self._known.move_to_end(author)
                return
            self._known[author] = Bucket(self._flows.author, self._stopwatch())
            if len(self._known) > LIMIT_AUTHORS:
                self._known.popitem(last=False)
