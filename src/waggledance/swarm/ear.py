"""The ear: how much of a swarm a node listens to, so that its cost hangs on what it samples and not on how
many others there are.

Every message has an address, one of ADDRESSES, drawn by hashing who sends it and which of theirs it is. A
node listens to an arc of that circle, named by the few binary prefixes that cover it: all of it in a small
swarm, a thousandth in a large one. Every author's messages fall evenly on all addresses, so any arc is a
fair sample of everyone. Pure: it knows nothing of the network.
"""

import hashlib
from dataclasses import dataclass

from waggledance.rollout import Author

BITS = 12
ADDRESSES = 1 << BITS
FINENESS = 16
"""An arc shorter than the circle is FINENESS/2 … FINENESS steps of some power of two long: fine enough to
stay within a sixteenth of what is wanted, coarse enough to need few prefixes."""
MEMORY_ROUNDS = 8
"""Over about so many rounds the rate is averaged."""
SLACK = 1.25
"""An arc is left as it is while what it brings is within this factor of what is wanted."""


def address_of(author: Author, sequence: int) -> int:
    digest = hashlib.blake2b(f"{author}/{sequence}".encode(), digest_size=8, person=b"waggle address")
    return int.from_bytes(digest.digest(), "big") % ADDRESSES


@dataclass(frozen=True, slots=True)
class Ear:
    start: int
    width: int = ADDRESSES
    """How many addresses it covers, from `start` on and around the circle."""

    def __post_init__(self) -> None:
        assert 0 <= self.start < ADDRESSES
        assert 1 <= self.width <= ADDRESSES

    @property
    def share(self) -> float:
        return self.width / ADDRESSES

    def hears(self, address: int) -> bool:
        return (address - self.start) % ADDRESSES < self.width

    def prefixes(self) -> tuple[str, ...]:
        """Binary prefixes that cover the arc and nothing else; the empty one is the whole circle."""
        if self.width == ADDRESSES:
            return ("",)
        end = self.start + self.width
        arcs = [(self.start, min(end, ADDRESSES)), (0, max(0, end - ADDRESSES))]
        return tuple(prefix for low, high in arcs for prefix in _covering(low, high))


def _covering(low: int, high: int) -> list[str]:
    """The longest aligned blocks first to last, as prefixes."""
    prefixes: list[str] = []
    while low < high:
        size = low & -low or ADDRESSES
        while low + size > high:
            size >>= 1
        depth = BITS - (size.bit_length() - 1)
        prefixes.append(f"{low:0{BITS}b}"[:depth])
        low += size
    return prefixes


def ear_of(author: Author, width: int = ADDRESSES) -> Ear:
    """Arcs start where their node's name hashes to, so that a large swarm covers the circle evenly."""
    return Ear(_rounded_start(address_of(author, -1)), width)


def _rounded_start(address: int) -> int:
    # Arcs that begin on a coarse step need fewer prefixes.
    step = ADDRESSES // (4 * FINENESS)
    return address // step * step


class Tuner:
    """Turns the ear, round by round, so that it brings about what the node wants."""

    def __init__(self, ear: Ear) -> None:
        self.ear = ear
        self._arrived = 0
        self._everything: float | None = None
        """How many messages a round there are in the whole swarm, as far as this ear can tell."""

    def turn(self, arrived: int, wanted: float) -> Ear:
        """`arrived` is how many messages have come in all, `wanted` how many a round are of use."""
        assert wanted > 0
        heard, self._arrived = arrived - self._arrived, arrived
        now = heard / self.ear.share
        before = now if self._everything is None else self._everything
        self._everything = before + (now - before) / MEMORY_ROUNDS
        brings = self._everything * self.ear.share
        enough = wanted / SLACK <= brings <= wanted * SLACK
        if not enough and not (self.ear.width == ADDRESSES and brings < wanted):
            # Hearing next to nothing tells next to nothing of how much there is: then twice as much will do.
            share = min(2 * self.ear.share, wanted / max(self._everything, 1e-9))
            self.ear = Ear(self.ear.start, width_for(share))
        return self.ear


def width_for(share: float) -> int:
    """The nearest width that the arc may have for a share of the circle, at least one address."""
    exact = max(1.0, min(1.0, share) * ADDRESSES)
    step = 1
    while exact / step > FINENESS:
        step *= 2
    return min(ADDRESSES, max(1, round(exact / step)) * step)
