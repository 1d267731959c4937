"""What every swarm keeps: the same tests over the fake in memory and over Zenoh."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Protocol

import pytest
import zenoh

from waggledance.events import Met, Parted
from waggledance.rollout import Author, Group, Rollout
from waggledance.seams import Card, Swarm
from waggledance.swarm.endpoint import ANY_LOOPBACK_PORT, free_loopback_endpoint
from waggledance.swarm.founding import Founding, cut, found
from waggledance.swarm.identity import Identity, make_identity
from waggledance.swarm.key import GROUPS, key_of
from waggledance.swarm.mailbox import Letter, Ring
from waggledance.swarm.memory import SWARM, MemoryHub
from waggledance.swarm.seal import SwarmSeal
from waggledance.swarm.window import Windows
from waggledance.swarm.wire import MESSAGE_LIMIT_BYTES, encode
from waggledance.swarm.zenoh import ZenohSwarm, open_zenoh_swarm
from waggledance.task import Digest, SourceName

DEADLINE_S = 10.0
PLENTY = 10_000.0
"""More groups a round than any test sends: whoever wants so many listens to everything."""
CARD = Card("tiny", 851_584, "0.1.0", {SourceName("arithmetic"): Digest("d1")})


def identity(name: str, session: int = 1) -> Identity:
    """The same key for the same name: who comes again is the same author."""
    return make_identity(name, name.encode().ljust(32, b"."), session)


ANT, BEE, CICADA = (identity(name).author for name in ("ant", "bee", "cicada"))


class Arena(Protocol):
    """Where the nodes of one test meet. All of it is sealed, in memory too."""

    def join(self, author: Author, inbox: Ring | None = None) -> Swarm: ...
    def letter(self, author: Author, body: bytes, sequence: int) -> Letter:
        """What the author would have sent."""
        ...

    def inject(self, letter: Letter) -> None:
        """Puts any bytes on anybody's key, as a stranger can."""
        ...

    def close(self) -> None: ...


def sealed(founding: Founding, swarm: str, author: Author, body: bytes, sequence: int) -> Letter:
    who = identity(author.partition(".")[0])
    key = key_of(swarm, GROUPS, 77, author)
    return Letter(key, SwarmSeal(cut(founding), who, Windows(), time.time).close(key, sequence, body))


class MemoryArena:
    def __init__(self) -> None:
        self._hub = MemoryHub()
        self._founding = found("test")

    def join(self, author: Author, inbox: Ring | None = None) -> Swarm:
        who = identity(author.partition(".")[0])
        seal = SwarmSeal(cut(self._founding), who, Windows(), time.time)
        return self._hub.join(author, inbox, seal)

    def letter(self, author: Author, body: bytes, sequence: int) -> Letter:
        return sealed(self._founding, SWARM, author, body, sequence)

    def inject(self, letter: Letter) -> None:
        self._hub.carry(Author("stranger"), letter)

    def close(self) -> None:
        pass


class ZenohArena:
    def __init__(self) -> None:
        self._founding = found("test")
        self._meeting = free_loopback_endpoint()
        self._swarms: list[Swarm] = []
        self._stranger: zenoh.Session | None = None

    def join(self, author: Author, inbox: Ring | None = None) -> Swarm:
        connect, listen = ([self._meeting], [ANY_LOOPBACK_PORT]) if self._swarms else ([], [self._meeting])
        who = identity(author.partition(".")[0], session=len(self._swarms) + 1)
        swarm = open_zenoh_swarm(cut(self._founding), who, CARD, connect=connect, listen=listen, inbox=inbox)
        self._swarms.append(swarm)
        return swarm

    def letter(self, author: Author, body: bytes, sequence: int) -> Letter:
        return sealed(self._founding, self._founding.swarm, author, body, sequence)

    def inject(self, letter: Letter) -> None:
        if self._stranger is None:
            config = {"mode": "client", "connect": {"endpoints": [self._meeting]}}
            self._stranger = zenoh.open(zenoh.Config.from_json5(json.dumps(config)))
            time.sleep(0.5)  # until it knows who listens: it is not one of ours, and nobody tells
        self._stranger.put(  # pyright: ignore[reportUnknownMemberType]
            letter.key, letter.message, congestion_control=zenoh.CongestionControl.BLOCK
        )

    def close(self) -> None:
        if self._stranger is not None:
            self._stranger.close()  # pyright: ignore[reportUnknownMemberType]
        for swarm in self._swarms:
            swarm.close()


@pytest.fixture(params=[MemoryArena, ZenohArena], ids=["memory", "zenoh"])
def arena(request: pytest.FixtureRequest) -> Iterator[Arena]:
    opened: Arena = request.param()
    yield opened
    opened.close()


def group(author: Author, index: int = 0, text: str = "four") -> Group:
    rollout = Rollout(text, finished=True, tokens=2, mean_logprob=-0.5)
    return Group(author, 1, SourceName("arithmetic"), Digest("d1"), index, (rollout,))


def until(condition: Callable[[], bool]) -> None:
    """Waits for others' threads; a test that waits in vain fails by name."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {DEADLINE_S} s in vain"
        time.sleep(0.002)


def meet(*swarms: Swarm) -> None:
    """Until all see all, and what they say to each other arrives."""
    until(lambda: all(len(swarm.peers()) == len(swarms) - 1 for swarm in swarms))
    until(lambda: all(is_listening(swarm) for swarm in swarms))


def is_listening(swarm: Swarm) -> bool:
    return not isinstance(swarm, ZenohSwarm) or swarm.listens


def receive(swarm: Swarm, count: int) -> list[Group]:
    groups: list[Group] = []

    def arrived() -> bool:
        groups.extend(swarm.drain(PLENTY))
        return len(groups) >= count

    until(arrived)
    return groups


def refused(swarm: Swarm) -> dict[tuple[Author | None, str], int]:
    swarm.drain(PLENTY)
    return dict(swarm.traffic().refused)


def test_a_group_reaches_all_others_and_never_oneself(arena: Arena) -> None:
    ant, bee, cicada = (arena.join(name) for name in (ANT, BEE, CICADA))
    meet(ant, bee, cicada)
    ant.publish(group(ANT, 7))
    assert receive(bee, 1) == [group(ANT, 7)]
    assert receive(cicada, 1) == [group(ANT, 7)]
    # Bee's answer comes after anything of ant's own could have.
    bee.publish(group(BEE, 8))
    assert receive(ant, 1) == [group(BEE, 8)]


def test_an_author_s_groups_arrive_in_order(arena: Arena) -> None:
    ant, bee = arena.join(ANT), arena.join(BEE)
    meet(ant, bee)
    for index in range(50):
        ant.publish(group(ANT, index, "x" * 20_000))
    assert [g.index for g in receive(bee, 50)] == list(range(50))


def test_draining_empties_and_never_waits(arena: Arena) -> None:
    ant, bee = arena.join(ANT), arena.join(BEE)
    meet(ant, bee)
    ant.publish(group(ANT))
    receive(bee, 1)
    started = time.monotonic()
    assert bee.drain(PLENTY) == []
    assert time.monotonic() - started < 0.1


def test_a_flood_keeps_the_newest_and_counts_the_rest(arena: Arena) -> None:
    ant, bee = arena.join(ANT), arena.join(BEE, Ring(limit_letters=10))
    meet(ant, bee)
    for index in range(200):
        ant.publish(group(ANT, index))
    until(lambda: bee.traffic().dropped == 190)
    assert [g.index for g in bee.drain(PLENTY)] == list(range(190, 200))


def size(arena: Arena, sent: Group) -> int:
    return len(arena.letter(sent.author, encode(sent), 1 << 32).message)


def test_a_mailbox_is_bounded_in_bytes(arena: Arena) -> None:
    letters = 8
    ant, bee = (
        arena.join(ANT),
        arena.join(BEE, Ring(limit_bytes=size(arena, group(ANT, 0, "x" * 40_000)) * letters)),
    )
    meet(ant, bee)
    for index in range(20):
        ant.publish(group(ANT, index, "x" * 40_000))
    until(lambda: bee.traffic().dropped == 20 - letters)
    assert [g.index for g in bee.drain(PLENTY)] == list(range(20 - letters, 20))


def test_peers_appear_and_leave(arena: Arena) -> None:
    ant = arena.join(ANT)
    assert not ant.peers()
    bee = arena.join(BEE)
    meet(ant, bee)
    assert (set(ant.peers()), set(bee.peers())) == ({BEE}, {ANT})
    bee.close()
    until(lambda: not ant.peers())
    ant.publish(group(ANT))
    again = arena.join(BEE)
    meet(ant, again)
    again.publish(group(BEE, 3))
    assert receive(ant, 1) == [group(BEE, 3)]


def test_after_closing_nothing_happens(arena: Arena) -> None:
    ant, bee = arena.join(ANT), arena.join(BEE)
    meet(ant, bee)
    bee.close()
    bee.close()
    bee.publish(group(BEE))
    assert not bee.peers()
    assert bee.drain(PLENTY) == []
    assert bee.traffic().sent_groups == 0


def test_closing_sends_what_was_published(arena: Arena) -> None:
    ant, bee = arena.join(ANT), arena.join(BEE)
    meet(ant, bee)
    for index in range(20):
        bee.publish(group(BEE, index, "x" * 20_000))
    bee.close()
    assert len(receive(ant, 20)) == 20


def test_who_comes_and_who_goes_is_news_once(arena: Arena) -> None:
    ant, bee = arena.join(ANT), arena.join(BEE)
    meet(ant, bee)
    news: list[Met | Parted] = []
    until(lambda: bool(news.extend(ant.news()) or news))
    bee.close()
    until(lambda: bool(news.extend(ant.news()) or len(news) > 1))
    [met, parted] = news
    assert isinstance(met, Met)
    assert met.author == BEE
    assert parted == Parted(BEE, "left")
    assert ant.news() == []


def test_hostile_messages_are_counted_by_reason_and_never_raised(arena: Arena) -> None:
    ant = arena.join(ANT)
    honest, body = arena.letter(BEE, encode(group(BEE)), 1), encode(group(BEE))
    arena.inject(honest._replace(message=b""))
    arena.inject(honest._replace(message=b"\x01" + b"\x91" * 100_000))
    arena.inject(honest._replace(message=honest.message[:-1]))
    arena.inject(honest._replace(message=b"\x02" + honest.message[1:]))
    arena.inject(honest._replace(message=honest.message + b"x" * MESSAGE_LIMIT_BYTES))
    arena.inject(honest._replace(key=honest.key.replace(BEE, CICADA)))
    arena.inject(arena.letter(ANT, body, 1))
    arena.inject(arena.letter(BEE, body.replace(b"arithmetic", b"arith?etic"), 2))
    arena.inject(arena.letter(BEE, body[:-1], 3))
    expected = {
        (None, "malformed"): 1,
        (None, "seal"): 3,
        (None, "version 2"): 1,
        (None, "oversize"): 1,
        (None, "own"): 1,
        (BEE, "bounds"): 1,
        (BEE, "malformed"): 1,
    }
    until(lambda: refused(ant) == expected)
    arena.inject(honest)
    assert receive(ant, 1) == [group(BEE)]
    arena.inject(honest)
    until(lambda: refused(ant) == expected | {(BEE, "replay"): 1})
    assert ant.traffic().received_groups == 1


def test_a_group_that_breaks_a_limit_is_counted_not_raised(arena: Arena) -> None:
    ant = arena.join(ANT)
    ant.publish(group(ANT, -1))
    ant.publish(group(ANT, 0, "\ud800"))
    assert ant.traffic().refused == {(None, "bounds"): 1, (None, "malformed"): 1}
    assert ant.traffic().sent_groups == 0


def test_traffic_adds_up(arena: Arena) -> None:
    ant, bee = arena.join(ANT), arena.join(BEE, Ring(limit_letters=5))
    meet(ant, bee)
    for index in range(12):
        ant.publish(group(ANT, index))
    until(lambda: bee.traffic().dropped == 7)
    bee.drain(PLENTY)
    until(lambda: ant.traffic().sent_groups == 12)
    length = size(arena, group(ANT))
    # A number in a message may take a byte more or less.
    assert abs(ant.traffic().sent_bytes - 12 * length) <= 12 * 8
    assert bee.traffic().received_groups == 5
    assert abs(bee.traffic().received_bytes - 5 * length) <= 5 * 8
    assert bee.traffic().refused == {}
