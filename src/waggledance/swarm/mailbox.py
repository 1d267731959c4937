"""The mailbox: what others sent, kept until the node's round has time for it.

Whoever receives (Zenoh's threads, the fake) only puts raw bytes in; opening and decoding happen in drain(),
on the node's own thread. Full, it lets the oldest letters go. It knows seal and wire and nothing of the
network.
"""

import threading
from collections import Counter, deque
from typing import NamedTuple, Protocol

from waggledance.rollout import Author, Group
from waggledance.seams import Traffic
from waggledance.swarm.bucket import Buckets
from waggledance.swarm.key import author_in
from waggledance.swarm.seal import Seal
from waggledance.swarm.wire import MESSAGE_LIMIT_BYTES, Reason, Refusal, decode

LIMIT_LETTERS = 1024
LIMIT_BYTES = 16 * 1024 * 1024
LIMIT_BLAMED = 1024
"""Authors whose refusals are counted apart; those of more are nobody's."""


class Letter(NamedTuple):
    key: str
    """The key it was put on: its author, unless the message proves otherwise."""
    message: bytes


class Tally:
    """Counts what crosses the boundary, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sent_groups = self._sent_bytes = 0
        self._received_groups = self._received_bytes = 0
        self._dropped = 0
        self._refused: Counter[tuple[Author | None, str]] = Counter()
        self._blamed: set[Author] = set()

    def sent(self, length: int) -> None:
        with self._lock:
            self._sent_groups += 1
            self._sent_bytes += length

    def received(self, length: int) -> None:
        with self._lock:
            self._received_groups += 1
            self._received_bytes += length

    def dropped(self, letters: int) -> None:
        with self._lock:
            self._dropped += letters

    def refused(self, refusal: Refusal) -> None:
        with self._lock:
            author = refusal.author
            if author is not None and author not in self._blamed:
                if len(self._blamed) < LIMIT_BLAMED:
                    self._blamed.add(author)
                else:
                    author = None
            self._refused[author, str(refusal)] += 1

    def traffic(self, listening: float = 1.0) -> Traffic:
        with self._lock:
            return Traffic(
                sent_groups=self._sent_groups,
                sent_bytes=self._sent_bytes,
                received_groups=self._received_groups,
                received_bytes=self._received_bytes,
                dropped=self._dropped,
                refused=dict(self._refused),
                listening=listening,
            )


class Queue(Protocol):
    """Letters between threads: bounded, never blocking."""

    @property
    def arrived(self) -> int: ...
    def put(self, letter: Letter) -> int: ...
    def take(self) -> Letter | None: ...
    def take_all(self) -> deque[Letter]: ...


class Ring:
    """A queue of letters between threads that never blocks: bounded in number and bytes, newest kept."""

    def __init__(self, limit_letters: int = LIMIT_LETTERS, limit_bytes: int = LIMIT_BYTES) -> None:
        assert limit_letters >= 1
        assert limit_bytes >= MESSAGE_LIMIT_BYTES, "the newest letter must always fit"
        self._limit_letters = limit_letters
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._letters: deque[Letter] = deque()
        self._bytes = 0
        self._arrived = 0

    @property
    def arrived(self) -> int:
        """How many were ever put in."""
        return self._arrived

    def put(self, letter: Letter) -> int:
        """Adds a letter and says how many older ones had to go for it."""
        gone = 0
        with self._lock:
            self._letters.append(letter)
            self._arrived += 1
            self._bytes += len(letter.message)
            while len(self._letters) > self._limit_letters or self._bytes > self._limit_bytes:
                self._bytes -= len(self._letters.popleft().message)
                gone += 1
        return gone

    def take(self) -> Letter | None:
        """The oldest letter."""
        with self._lock:
            if not self._letters:
                return None
            letter = self._letters.popleft()
            self._bytes -= len(letter.message)
            return letter

    def take_all(self) -> deque[Letter]:
        """What is there now, oldest first: bounded, however fast others go on putting."""
        with self._lock:
            letters, self._letters = self._letters, deque()
            self._bytes = 0
            return letters


class Mailbox:
    """A node's incoming letters, and the groups in them."""

    def __init__(
        self, owner: Author, seal: Seal, ring: Queue, tally: Tally, buckets: Buckets | None = None
    ) -> None:
        """Without buckets, as among nodes of one process, only the ring bounds what comes."""
        self._owner = owner
        self._buckets = buckets
        self._seal = seal
        self._ring = ring
        self._tally = tally

    def put(self, letter: Letter) -> None:
        """One that was admitted."""
        self._tally.dropped(self._ring.put(letter))

    def admits(self, key: str, length: int) -> bool:
        """Whether a message of so many bytes on this key is worth taking in; refused, it is counted. The size
        is looked at here, not at opening: what will be refused must not push others out."""
        author = author_in(key)
        if length > MESSAGE_LIMIT_BYTES:
            self._tally.refused(Refusal(Reason.OVERSIZE))
        elif author == self._owner:
            self._tally.refused(Refusal(Reason.OWN))
        elif self._buckets is not None and not self._buckets.admits(author):
            self._tally.refused(Refusal(Reason.FLOOD))
        else:
            return True
        return False

    def opened(self, letter: Letter) -> tuple[Author, bytes]:
        """Who wrote it and what; raises Refusal."""
        author, body = self._seal.open(letter.key, letter.message)
        if self._buckets is not None:
            self._buckets.know(author)
        return author, body

    @property
    def arrived(self) -> int:
        return self._ring.arrived

    def drain(self) -> list[Group]:
        groups: list[Group] = []
        for letter in self._ring.take_all():
            try:
                groups.append(self._read(letter))
            except Refusal as refusal:
                self._tally.refused(refusal)
            else:
                self._tally.received(len(letter.message))
        return groups

    def _read(self, letter: Letter) -> Group:
        author, body = self.opened(letter)
        try:
            return decode(body, author)
        except Refusal as refusal:  # what is inside is its author's doing: the signature held
            raise Refusal(refusal.reason, author, refusal.detail) from None
