"""What every swarm keeps: the same tests over the fake in memory and over Zenoh."""

import json
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Protocol

import pytest
import zenoh

from waggledance.rollout import Author, Group, Rollout
from waggledance.seams import Swarm
from waggledance.swarm.mailbox import Letter, Ring
from waggledance.swarm.memory import MemoryHub
from waggledance.swarm.wire import MESSAGE_LIMIT_BYTES, encode
from waggledance.swarm.zenoh import ANY_LOOPBACK_PORT, free_loopback_endpoint, open_zenoh_swarm
from waggledance.task import Digest, SourceName

ANT, BEE, CICADA = Author("ant"), Author("bee"), Author("cicada")
DEADLINE_S = 10.0


class Arena(Protocol):
    """Where the nodes of one test meet."""

    def join(self, author: Author, inbox: Ring | None = None) -> Swarm: ...
    def inject(self, author: Author, message: bytes) -> None:
        """Puts any bytes on anybody's key, as a stranger can."""
        ...

    def close(self) -> None: ...


class MemoryArena:
    def __init__(self) -> None:
        self._hub = MemoryHub()

    def join(self, author: Author, inbox: Ring | None = None) -> Swarm:
        return self._hub.join(author, inbox)

    def inject(self, author: Author, message: bytes) -> None:
        self._hub.carry(Author("stranger"), Letter(author, message))

    def close(self) -> None:
        pass


class ZenohArena:
    def __init__(self) -> None:
        self._name = f"test-{uuid.uuid4().hex}"
        self._meeting = free_loopback_endpoint()
        self._swarms: list[Swarm] = []
        self._stranger: zenoh.Session | None = None

    def join(self, author: Author, inbox: Ring | None = None) -> Swarm:
        connect, listen = ([self._meeting], [ANY_LOOPBACK_PORT]) if self._swarms else ([], [self._meeting])
        self._swarms.append(open_zenoh_swarm(author, self._name, connect, listen, inbox=inbox))
        return self._swarms[-1]

    def inject(self, author: Author, message: bytes) -> None:
        if self._stranger is None:
            config = {"mode": "client", "connect": {"endpoints": [self._meeting]}}
            self._stranger = zenoh.open(zenoh.Config.from_json5(json.dumps(config)))
        self._stranger.put(  # pyright: ignore[reportUnknownMemberType]
            f"waggle/1/{self._name}/groups/{author}",
            message,
            congestion_control=zenoh.CongestionControl.BLOCK,
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
    until(lambda: all(len(swarm.peers()) == len(swarms) - 1 for swarm in swarms))


def receive(swarm: Swarm, count: int) -> list[Group]:
    groups: list[Group] = []

    def arrived() -> bool:
        groups.extend(swarm.drain())
        return len(groups) >= count

    until(arrived)
    return groups


def refused(swarm: Swarm) -> dict[str, int]:
    swarm.drain()
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
    assert bee.drain() == []
    assert time.monotonic() - started < 0.1


def test_a_flood_keeps_the_newest_and_counts_the_rest(arena: Arena) -> None:
    ant, bee = arena.join(ANT), arena.join(BEE, Ring(limit_letters=10))
    meet(ant, bee)
    for index in range(200):
        ant.publish(group(ANT, index))
    until(lambda: bee.traffic().dropped == 190)
    assert [g.index for g in bee.drain()] == list(range(190, 200))


def test_a_mailbox_is_bounded_in_bytes(arena: Arena) -> None:
    letters = 8
    ant, bee = (
        arena.join(ANT),
        arena.join(BEE, Ring(limit_bytes=letters * (len(encode(group(ANT, 0, "x" * 40_000)))))),
    )
    meet(ant, bee)
    for index in range(20):
        ant.publish(group(ANT, index, "x" * 40_000))
    until(lambda: bee.traffic().dropped == 20 - letters)
    assert [g.index for g in bee.drain()] == list(range(20 - letters, 20))


def test_peers_appear_and_leave(arena: Arena) -> None:
    ant = arena.join(ANT)
    assert ant.peers() == frozenset()
    bee = arena.join(BEE)
    meet(ant, bee)
    assert (ant.peers(), bee.peers()) == ({BEE}, {ANT})
    bee.close()
    until(lambda: ant.peers() == frozenset())
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
    assert bee.peers() == frozenset()
    assert bee.drain() == []
    assert bee.traffic().sent_groups == 0


def test_closing_sends_what_was_published(arena: Arena) -> None:
    ant, bee = arena.join(ANT), arena.join(BEE)
    meet(ant, bee)
    for index in range(20):
        bee.publish(group(BEE, index, "x" * 20_000))
    bee.close()
    assert len(receive(ant, 20)) == 20


def test_hostile_messages_are_counted_by_reason_and_never_raised(arena: Arena) -> None:
    ant = arena.join(ANT)
    valid = encode(group(BEE))
    arena.inject(BEE, b"")
    arena.inject(BEE, b"\x91" * 100_000)
    arena.inject(BEE, valid[:-1])
    arena.inject(BEE, valid.replace(b"\x97\x01", b"\x97\x02", 1))
    arena.inject(BEE, valid.replace(b"arithmetic", b"arith?etic"))
    arena.inject(BEE, valid + b"x" * MESSAGE_LIMIT_BYTES)
    arena.inject(CICADA, valid)
    arena.inject(ANT, encode(group(ANT)))
    expected = {"malformed": 3, "version": 1, "bounds": 1, "oversize": 1, "forged": 1, "own": 1}
    until(lambda: refused(ant) == expected)
    arena.inject(BEE, valid)
    assert receive(ant, 1) == [group(BEE)]
    assert ant.traffic().received_groups == 1


def test_a_group_that_breaks_a_limit_is_counted_not_raised(arena: Arena) -> None:
    ant = arena.join(ANT)
    ant.publish(group(ANT, -1))
    ant.publish(group(ANT, 0, "\ud800"))
    assert ant.traffic().refused == {"bounds": 1, "malformed": 1}
    assert ant.traffic().sent_groups == 0


def test_traffic_adds_up(arena: Arena) -> None:
    ant, bee = arena.join(ANT), arena.join(BEE, Ring(limit_letters=5))
    meet(ant, bee)
    for index in range(12):
        ant.publish(group(ANT, index))
    until(lambda: bee.traffic().dropped == 7)
    bee.drain()
    length = sum(len(encode(group(ANT, index))) for index in range(12))
    until(lambda: ant.traffic().sent_groups == 12)
    assert ant.traffic().sent_bytes == length
    kept = sum(len(encode(group(ANT, index))) for index in range(7, 12))
    assert (bee.traffic().received_groups, bee.traffic().received_bytes) == (5, kept)
    assert bee.traffic().refused == {}
