"""The swarm in memory: nodes of one process that hear each other through a hub. For tests and the lab.

Everything crosses it as bytes, as over the real network, under the same keys and past the same ears. The
hub delays, drops, duplicates, corrupts and partitions on request, drawn from its seed for each letter by
itself: same seed and same letters, same faults, whatever the threads do. Delays count the receiver's
drains; wall time plays no part.
"""

import random
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from waggledance.errors import SwarmError, UsageError
from waggledance.events import Met, Parted
from waggledance.rollout import Author, Group
from waggledance.seams import Peer, Traffic
from waggledance.seed import derive
from waggledance.swarm.ear import Tuner, address_of, ear_of
from waggledance.swarm.key import GROUPS, address_in, key_of
from waggledance.swarm.mailbox import Letter, Mailbox, Ring, Tally
from waggledance.swarm.seal import Seal, Unsealed
from waggledance.swarm.wire import Refusal, encode, is_author

SWARM = "memory"
"""What the hub's swarm is called in keys."""


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
        self._faults = faults
        self._seed = seed
        self._lock = threading.RLock()
        self._swarms: dict[Author, MemorySwarm] = {}
        self._sides: dict[Author, int] = {}
        self._carried: Counter[Author] = Counter()

    def join(self, author: Author, ring: Ring | None = None, seal: Seal | None = None) -> "MemorySwarm":
        if not is_author(author):
            raise UsageError(f"{author!r} cannot name a node: use letters, digits and ._- (96 at most)")
        with self._lock:
            if author in self._swarms:
                raise SwarmError(f"a node named {author} is in the swarm already: give this one another name")
            self._swarms[author] = MemorySwarm(author, self, ring or Ring(), seal or Unsealed())
            self._swarms = dict(sorted(self._swarms.items()))
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

    def is_here(self, author: Author) -> bool:
        with self._lock:
            return author in self._swarms

    def reachable(self, author: Author) -> "dict[Author, MemorySwarm]":
        """In the order of their names."""
        with self._lock:
            side = self._sides.get(author)
            return {
                name: swarm
                for name, swarm in self._swarms.items()
                if name != author and self._sides.get(name) == side
            }

    def carry(self, sender: Author, letter: Letter) -> None:
        """Takes a letter to everybody whom the sender reaches and who listens: any bytes, on anybody's
        key."""
        address = address_in(letter.key)
        with self._lock:
            self._carried[sender] += 1
            number = self._carried[sender]
            for name, swarm in self.reachable(sender).items():
                if not swarm.hears(address):
                    continue
                if self._faults is None:
                    swarm.arrive(letter, 0)
                else:
                    self._deliver(self._faults, letter, swarm, derive(self._seed, sender, name, number))

    def _deliver(self, faults: Faults, letter: Letter, receiver: "MemorySwarm", seed: int) -> None:
        draw = random.Random(seed)
        if draw.random() < faults.dropped:
            return
        for _ in range(2 if draw.random() < faults.duplicated else 1):
            spoilt = draw.random() < faults.corrupted
            arriving = letter._replace(message=_corrupt(letter.message, draw)) if spoilt else letter
            receiver.arrive(arriving, draw.randint(0, faults.max_delay_drains))


class MemorySwarm:
    """One node's end of a hub; `MemoryHub.join` makes it."""

    def __init__(self, author: Author, hub: MemoryHub, ring: Ring, seal: Seal) -> None:
        self._author = author
        self._hub = hub
        self._seal = seal
        self._tally = Tally()
        self._mailbox = Mailbox(author, seal, ring, self._tally)
        self._tuner = Tuner(ear_of(author))
        self._lock = threading.Lock()
        self._drains = 0
        self._published = 0
        # (drain it is due at, letter). Not bounded: a fault of the hub's, and no hub outlives its test.
        self._under_way: list[tuple[int, Letter]] = []
        self._met: frozenset[Author] = frozenset()
        self._closed = False

    def publish(self, group: Group) -> None:
        assert group.author == self._author, "a node publishes its own groups only"
        if self._closed:
            return
        self._published += 1
        key = key_of(SWARM, GROUPS, address_of(self._author, self._published), self._author)
        try:
            message = self._seal.close(key, self._published, encode(group))
        except Refusal as refusal:
            self._tally.refused(refusal)
            return
        self._hub.carry(self._author, Letter(key, message))
        self._tally.sent(len(message))

    def hears(self, address: int | None) -> bool:
        ear = self._tuner.ear
        return ear.share == 1.0 if address is None else ear.hears(address)

    def arrive(self, letter: Letter, delay_drains: int) -> None:
        if not self._mailbox.admits(letter.key, len(letter.message)):
            return
        if delay_drains == 0:
            self._mailbox.put(letter)
            return
        with self._lock:
            self._under_way.append((self._drains + delay_drains, letter))

    def drain(self, wanted: float) -> list[Group]:
        for letter in self._due():
            self._mailbox.put(letter)
        self._tuner.turn(self._mailbox.arrived, wanted)
        return self._mailbox.drain()

    def _due(self) -> list[Letter]:
        with self._lock:
            due = [letter for at, letter in self._under_way if at <= self._drains]
            self._under_way = [(at, letter) for at, letter in self._under_way if at > self._drains]
            self._drains += 1
            return due

    def peers(self) -> Mapping[Author, Peer]:
        here = {} if self._closed else self._hub.reachable(self._author)
        return {author: Peer(author, since=0.0, card=None) for author in here}

    def grants(self) -> Mapping[Author, str]:
        return self._seal.grants

    def news(self) -> list[Met | Parted]:
        before, self._met = self._met, frozenset(self._hub.reachable(self._author))
        return [
            *(Met(author, "", 0, "", {}) for author in sorted(self._met - before)),
            *(
                Parted(author, "lost" if self._hub.is_here(author) else "left")
                for author in sorted(before - self._met)
            ),
        ]

    def traffic(self) -> Traffic:
        return self._tally.traffic(self._tuner.ear.share)

    @property
    def trouble(self) -> str | None:
        return None

    def close(self) -> None:
        self._closed = True
        self._hub.leave(self._author)


def _corrupt(message: bytes, draw: random.Random) -> bytes:
    spoilt = bytearray(message)
    for place in draw.sample(range(len(spoilt)), k=min(8, len(spoilt))):
        spoilt[place] ^= draw.randint(1, 255)
    return bytes(spoilt)
