"""The lab's swarm: nodes of one process that hear whom the plan says, rounds late or not at all.

Every group is written and read once, as over the wire, so that what arrives is what would have; then all who
hear its author are handed the same one. Time is the experiment's round; `swarm/memory.py` is for faults.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from waggledance.events import Met, Parted
from waggledance.lab.plan import Hears
from waggledance.rollout import Author, Group
from waggledance.seams import Peer, Traffic
from waggledance.seed import derive
from waggledance.swarm.wire import decode, encode

LONG_LINKS = 1
"""A node of a small world has so many links across the ring."""
GROUP_NODES, GROUP_ROUNDS = 4, 25
"""Groups that change: so many nodes, for so many rounds."""


class Hub:
    def __init__(
        self, authors: Sequence[Author], hears: Hears, *, delay_rounds: int, lost: float, seed: int
    ) -> None:
        self._authors = list(authors)
        self._hears = hears
        self._delay_rounds = delay_rounds
        self._lost = lost
        self._seed = seed
        self._round = 0
        self._lines = {author: Line(author, self) for author in authors}
        self._links = self._linked()
        self._audible = self._heard()

    def line(self, author: Author) -> "Line":
        return self._lines[author]

    def turn(self, round_: int) -> None:
        """The next round begins."""
        self._round = round_
        if self._hears == "groups" and round_ % GROUP_ROUNDS == 0:
            self._links = self._linked()
            self._audible = self._heard()

    def carry(self, sender: Author, number: int, group: Group) -> None:
        for author in self._links[sender]:
            if self._lost and random.Random(derive(self._seed, sender, author, number)).random() < self._lost:
                continue
            self._lines[author].arrive(self._round + self._delay_rounds, group)

    def heard_by(self, author: Author) -> list[Author]:
        return self._audible[author]

    @property
    def round(self) -> int:
        return self._round

    def _heard(self) -> dict[Author, list[Author]]:
        return {
            author: [other for other in self._authors if author in self._links[other]]
            for author in self._authors
        }

    def _linked(self) -> dict[Author, list[Author]]:
        names, count = self._authors, len(self._authors)
        links: dict[Author, set[Author]] = {author: set() for author in names}
        if self._hears == "all":
            _join_all(links, names)
        elif self._hears == "groups":
            draw = random.Random(derive(self._seed, "groups", self._round // GROUP_ROUNDS))
            mixed = draw.sample(names, count)
            for first, last in pairwise([*range(0, count, GROUP_NODES), count]):
                _join_all(links, mixed[first:last])
        else:
            _join_ring(links, names)
        if self._hears == "small-world":
            draw = random.Random(derive(self._seed, "small-world"))
            for author in names:
                _join_all(links, (author, *draw.sample(names, min(LONG_LINKS, count))))
        return {author: [name for name in names if name in links[author] - {author}] for author in names}


def _join_ring(links: Mapping[Author, set[Author]], names: Sequence[Author]) -> None:
    for place, author in enumerate(names):
        _join_all(links, (author, names[(place + 1) % len(names)]))


def _join_all(links: Mapping[Author, set[Author]], together: Iterable[Author]) -> None:
    members = set(together)
    for author in members:
        links[author].update(members)


class Line:
    """One node's end of the hub."""

    def __init__(self, author: Author, hub: Hub) -> None:
        self._author = author
        self._hub = hub
        self._sent_groups = self._sent_bytes = self._received = 0
        self._under_way: list[tuple[int, Group]] = []

    def publish(self, group: Group) -> None:
        body = encode(group)
        self._sent_groups += 1
        self._sent_bytes += len(body)
        self._hub.carry(self._author, self._sent_groups, decode(body, self._author))

    def arrive(self, due: int, group: Group) -> None:
        self._under_way.append((due, group))

    def drain(self, wanted: float) -> list[Group]:
        """All that is due: a lab's swarm is small enough to be heard whole."""
        assert wanted > 0
        now = self._hub.round
        due = [group for at, group in self._under_way if at <= now]
        self._under_way = [(at, group) for at, group in self._under_way if at > now]
        self._received += len(due)
        return due

    def peers(self) -> Mapping[Author, Peer]:
        return {author: Peer(author, since=0.0, card=None) for author in self._hub.heard_by(self._author)}

    def grants(self) -> Mapping[Author, str]:
        return {}

    def news(self) -> list[Met | Parted]:
        return []

    def traffic(self) -> Traffic:
        return Traffic(
            sent_groups=self._sent_groups, sent_bytes=self._sent_bytes, received_groups=self._received
        )

    @property
    def trouble(self) -> str | None:
        return None

    def close(self) -> None:
        self._under_way = []
