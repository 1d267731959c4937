"""Presence: who is here, since when, with what; who left and who was lost.

Tokens say that a session is alive, cards what its node is. Both come from the network's threads and only
touch bounded tables here. A token that vanishes and returns within the grace was a router being changed,
nothing more. Knows no network. Two times are arguments: a clock for people, which may jump, and a stopwatch
for the grace, which may not.
"""

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from waggledance.events import Met, Parted
from waggledance.rollout import Author
from waggledance.seams import Card, Peer
from waggledance.swarm.wire import is_author

Clock = Callable[[], float]

LIMIT_PEERS = 4096
LIMIT_NEWS = 1024
LIMIT_SESSIONS = 16
"""Of one node: tokens are not signed, and anyone may show some in another's name."""
GRACE_S = 3.0
"""How long a token may be gone before its node is."""


@dataclass(slots=True)
class _Seen:
    since: float
    sessions: dict[str, None] = field(default_factory=dict[str, None])
    """Oldest first. A node that restarts is here twice until its old session's lease runs out."""
    card: Card | None = None
    gone_at: float | None = None
    """By the stopwatch."""
    told: bool = False


class Presence:
    def __init__(self, owner: Author, clock: Clock, stopwatch: Clock, grace_s: float = GRACE_S) -> None:
        self._owner = owner
        self._clock = clock
        self._stopwatch = stopwatch
        self._grace_s = grace_s
        self._lock = threading.Lock()
        self._seen: dict[Author, _Seen] = {}
        self._news: deque[Met | Parted] = deque(maxlen=LIMIT_NEWS)
        self.newcomers = 0
        """How many have come so far: whoever has cards to give looks whether it grew."""

    def came(self, author: Author, session: str) -> None:
        if author == self._owner or not is_author(author):
            return
        with self._lock:
            seen = self._seen.get(author)
            if seen is not None and seen.gone_at is not None and _is_leaving(seen):
                self._part(author, seen)  # said goodbye and is back already
            if author not in self._seen:
                if len(self._seen) >= LIMIT_PEERS:
                    return
                self._seen[author] = _Seen(self._clock())
                self.newcomers += 1
            seen = self._seen[author]
            seen.sessions[session] = None
            if len(seen.sessions) > LIMIT_SESSIONS:
                del seen.sessions[next(iter(seen.sessions))]
            seen.gone_at = None

    def went(self, author: Author, session: str) -> None:
        with self._lock:
            seen = self._seen.get(author)
            if seen is None:
                return
            seen.sessions.pop(session, None)
            if not seen.sessions and seen.gone_at is None:
                seen.gone_at = self._stopwatch()

    def asked(self) -> None:
        """Somebody who only looks has come: not one of those who are here, but one to show the card to."""
        with self._lock:
            self.newcomers += 1

    def told(self, author: Author, card: Card) -> None:
        """A card whose signature held. One that comes before its token waits for nothing: cards repeat."""
        with self._lock:
            seen = self._seen.get(author)
            if seen is None:
                return
            seen.card = card
            if not seen.told and not card.leaving:
                seen.told = True
                sources = {str(name): str(digest) for name, digest in card.sources.items()}
                self._news.append(Met(author, card.model, card.weights, card.version, sources))

    def peers(self) -> Mapping[Author, Peer]:
        with self._lock:
            self._forget()
            return {author: Peer(author, seen.since, seen.card) for author, seen in self._seen.items()}

    def news(self) -> list[Met | Parted]:
        with self._lock:
            self._forget()
            news = list(self._news)
            self._news.clear()
            return news

    def _forget(self) -> None:
        """Those whose token has been gone for longer than the grace, or who said that they leave."""
        now = self._stopwatch()
        for author, seen in list(self._seen.items()):
            if seen.gone_at is not None and (_is_leaving(seen) or now - seen.gone_at > self._grace_s):
                self._part(author, seen)

    def _part(self, author: Author, seen: _Seen) -> None:
        del self._seen[author]
        if seen.told:
            self._news.append(Parted(author, "left" if _is_leaving(seen) else "lost"))


def _is_leaving(seen: _Seen) -> bool:
    return seen.card is not None and seen.card.leaving


def leaving(card: Card) -> Card:
    return replace(card, leaving=True)
