"""The sky: a swarm of thousands of nodes in one process, to count what each of them says and hears.

Every node is a real one, with its own ear, tuner and appetite; only the network is missing. Groups are handed
over as they are, and what they would weigh on the wire, key, signature and seal included, is counted. Who
listens is looked up by address, so that a round costs what is heard and not the square of the nodes.
"""

import os
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import count
from typing import NamedTuple

from waggledance.events import Met, Parted
from waggledance.rollout import Author, Group
from waggledance.seams import Card, Peer, Traffic
from waggledance.swarm.ear import ADDRESSES, Ear, Tuner, address_of, ear_of, width_for
from waggledance.swarm.founding import cut, found
from waggledance.swarm.identity import author_of, make_identity
from waggledance.swarm.key import CARDS, GROUPS, key_of
from waggledance.swarm.seal import SwarmSeal
from waggledance.swarm.window import Windows
from waggledance.swarm.wire import encode, encode_card
from waggledance.swarm.zenoh import CARD_EVERY_S, FIRST_NEIGHBOURS

_SWARM = "0" * 16
"""As long as a real one's id."""


class Saying(NamedTuple):
    number: int
    author: Author
    group: Group | None
    """None for a card."""
    length: int


class Sky:
    def __init__(self, neighbours: int, card: Card, round_s: float) -> None:
        """`round_s` is how long a round takes: cards come by the clock, groups by the round."""
        self.neighbours = neighbours
        self.round_s = round_s
        self.card = card
        self.envelope = _envelope_bytes()
        self._numbers = count(1)
        self._said: list[deque[Saying]] = [deque() for _ in range(ADDRESSES)]
        self._all: deque[tuple[int, Saying]] = deque()
        """With their addresses, oldest first."""

    def join(self, name: str) -> "SkySwarm":
        return SkySwarm(author_of(name, name.encode().ljust(32, b"\0")), self)

    def say(self, author: Author, address: int, group: Group | None, length: int) -> None:
        saying = Saying(next(self._numbers), author, group, length)
        self._said[address].append(saying)
        self._all.append((address, saying))

    def heard(self, ear: Ear, since: int) -> Iterator[Saying]:
        """What was said under an ear after number `since`."""
        if len(self._all) < ear.width:
            yield from (
                saying for address, saying in self._all if saying.number > since and ear.hears(address)
            )
            return
        for step in range(ear.width):
            for saying in self._said[(ear.start + step) % ADDRESSES]:
                if saying.number > since:
                    yield saying

    def newest(self) -> int:
        return next(self._numbers)

    def forget(self, before: int) -> None:
        while self._all and self._all[0][1].number < before:
            address, _ = self._all.popleft()
            self._said[address].popleft()


class SkySwarm:
    """One node's end of the sky."""

    def __init__(self, author: Author, sky: Sky) -> None:
        self.author = author
        self._sky = sky
        self._sequence = 0
        self._since = 0
        self._arrived = 0
        crowd = max(FIRST_NEIGHBOURS, sky.neighbours)
        self._tuner = Tuner(ear_of(author, width_for(FIRST_NEIGHBOURS / crowd)))
        self._card_length = len(encode_card(sky.card)) + sky.envelope
        # Nodes start at different times: their cards do not come all at once.
        self._card_due_s = CARD_EVERY_S * address_of(author, -1) / ADDRESSES
        self._sent_groups = self._received_groups = 0
        self._sent_bytes = self._received_bytes = 0

    def publish(self, group: Group) -> None:
        self._say(GROUPS, group, len(encode(group)) + self._sky.envelope)
        self._sent_groups += 1

    def drain(self, wanted: float) -> list[Group]:
        self._show_card()
        groups: list[Group] = []
        for saying in self._sky.heard(self._tuner.ear, self._since):
            if saying.author == self.author:
                continue
            self._received_bytes += saying.length
            if saying.group is not None:
                groups.append(saying.group)
        self._since = self._sky.newest()
        self._arrived += len(groups)
        self._received_groups += len(groups)
        self._tuner.turn(self._arrived, wanted)
        return groups

    def peers(self) -> Mapping[Author, Peer]:
        return {}

    def grants(self) -> Mapping[Author, str]:
        return {}

    def news(self) -> list[Met | Parted]:
        return []

    def traffic(self) -> Traffic:
        return Traffic(
            sent_groups=self._sent_groups,
            sent_bytes=self._sent_bytes,
            received_groups=self._received_groups,
            received_bytes=self._received_bytes,
            listening=self._tuner.ear.share,
        )

    @property
    def trouble(self) -> str | None:
        return None

    def close(self) -> None:
        return

    def _say(self, kind: str, group: Group | None, length: int) -> None:
        self._sequence += 1
        address = address_of(self.author, self._sequence)
        length += len(key_of(_SWARM, kind, address, self.author))
        self._sky.say(self.author, address, group, length)
        self._sent_bytes += length

    def _show_card(self) -> None:
        self._card_due_s -= self._sky.round_s
        if self._card_due_s <= 0:
            self._card_due_s += CARD_EVERY_S
            self._say(CARDS, None, self._card_length)


def _envelope_bytes() -> int:
    """What signing and sealing add to a body in a private swarm."""
    ticket = cut(found("sky"))
    identity = make_identity("sky", os.urandom(32), session=1)
    body = bytes(20_000)
    return len(SwarmSeal(ticket, identity, Windows(), lambda: 0.0).close("a/b", 1 << 40, body)) - len(body)
