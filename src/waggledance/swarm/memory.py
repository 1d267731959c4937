"""The swarm in memory: nodes of one process that hear each other through a hub. For tests and the lab.

Everything crosses it as bytes, as over the real network. The hub delays, drops, duplicates, corrupts and
partitions on request, drawn from its seed for each letter by itself: same seed and same letters, same faults,
whatever the threads do. Delays count the receiver's drains; wall time plays no part.
"""

import random
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from waggledance.errors import SwarmError, UsageError
from waggledance.rollout import Author, Group
from waggledance.seams import Traffic
from waggledance.seed import derive
from waggledance.swarm.mailbox import Letter, Mailbox, Ring, Tally
from waggledance.swarm.wire import Refusal, encode, is_name


@dataclass(frozen=True, slots=True)
class Faults:
    """What the hub does to a letter on its way to one receiver; the shares lie between 0 and 1."""

    max_delay_drains: int = 0
    """A letter waits for so many of the receiver's drains at most, evenly drawn; so letters overtake."""
    dropped: float = 0.0
    duplicated: float = 0.0
    corrupted: float = 0.0


class MemoryHub:
    def __init__(self, faults: Faults | None = None, seed: int = 0) -> None:
        self._faults = faults or Faults()
        self._seed = seed
        self._lock = threading.RLock()
        self._swarms: dict[Author, MemorySwarm] = {}
        self._sides: dict[Author, int] = {}
        self._carried: Counter[Author] = Counter()

    def join(self, author: Author, ring: Ring | None = None) -> "MemorySwarm":
        if not is_name(author):
            raise UsageError(f"{author!r} cannot name a node: use letters, digits and ._- (64 at most)")
        with self._lock:
            if author in self._swarms:
                raise SwarmError(f"a node named {author} is in the swarm already: give this one another name")
            self._swarms[author] = MemorySwarm(author, self, ring or Ring())
            return self._swarms[author]

    def leave(self, author: Author) -> None:
        with self._lock:
            self._swarms.pop(author, None)

    def partition(self, *sides: Iterable[Author]) -> None:
        """Cuts the swarm: nodes hear their own side only. Nodes that are not named make up one more side."""
        with self._lock:
            self._sides = {author: number for number, side in enumerate(sides) for author in side}

    def heal(self) -> None:
        self.partition()

    def reachable(self, author: Author) -> frozenset[Author]:
        with self._lock:
            side = self._sides.get(author)
            return frozenset(name for name in self._swarms if self._sides.get(name) == side) - {author}

    def carry(self, sender: Author, letter: Letter) -> None:
        """Takes a letter to everybody whom the sender reaches: any bytes, on anybody's key."""
        with self._lock:
            self._carried[sender] += 1
            number = self._carried[sender]
            for name in sorted(self.reachable(sender)):
                self._deliver(letter, self._swarms[name], derive(self._seed, sender, name, number))

    def _deliver(self, letter: Letter, receiver: "MemorySwarm", seed: int) -> None:
        draw = random.Random(seed)
        if draw.random() < self._faults.dropped:
            return
        for _ in range(2 if draw.random() < self._faults.duplicated else 1):
            spoilt = draw.random() < self._faults.corrupted
            arriving = letter._replace(message=_corrupt(letter.message, draw)) if spoilt else letter
            receiver.arrive(arriving, draw.randint(0, self._faults.max_delay_drains))


class MemorySwarm:
    """One node's end of a hub; `MemoryHub.join` makes it."""

    def __init__(self, author: Author, hub: MemoryHub, ring: Ring) -> None:
        self._author = author
        self._hub = hub
        self._tally = Tally()
        self._mailbox = Mailbox(author, ring, self._tally)
        self._lock = threading.Lock()
        self._drains = 0
        # (drain it is due at, letter). Not bounded: a fault of the hub's, and no hub outlives its test.
        self._under_way: list[tuple[int, Letter]] = []
        self._closed = False

    def publish(self, group: Group) -> None:
        assert group.author == self._author, "a node publishes its own groups only"
        if self._closed:
            return
        try:
            message = encode(group)
        except Refusal as refusal:
            self._tally.refused(refusal.reason)
            return
        self._hub.carry(self._author, Letter(self._author, message))
        self._tally.sent(len(message))

    def arrive(self, letter: Letter, delay_drains: int) -> None:
        if delay_drains == 0:
            self._mailbox.put(letter)
            return
        with self._lock:
            self._under_way.append((self._drains + delay_drains, letter))

    def drain(self) -> list[Group]:
        for letter in self._due():
            self._mailbox.put(letter)
        return self._mailbox.drain()

    def _due(self) -> list[Letter]:
        with self._lock:
            due = [letter for at, letter in self._under_way if at <= self._drains]
            self._under_way = [(at, letter) for at, letter in self._under_way if at > self._drains]
            self._drains += 1
            return due

    def peers(self) -> frozenset[Author]:
        return frozenset() if self._closed else self._hub.reachable(self._author)

    def traffic(self) -> Traffic:
        return self._tally.traffic()

    def close(self) -> None:
        self._closed = True
        self._hub.leave(self._author)


def _corrupt(message: bytes, draw: random.Random) -> bytes:
    spoilt = bytearray(message)
    for place in draw.sample(range(len(spoilt)), k=min(8, len(spoilt))):
        spoilt[place] ^= draw.randint(1, 255)
    return bytes(spoilt)
