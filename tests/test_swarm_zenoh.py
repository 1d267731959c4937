"""Zenoh between real processes: joining, being killed, being stuck, and what goes wrong at opening."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.context import SpawnProcess
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from swarm_run import make_node
from test_swarm_contract import CARD, DEADLINE_S, PLENTY, group, identity, is_listening, receive, until
from waggledance.errors import SwarmError, UsageError
from waggledance.events import Shared
from waggledance.rollout import Author
from waggledance.seams import Swarm
from waggledance.swarm.endpoint import ANY_LOOPBACK_PORT, free_loopback_endpoint
from waggledance.swarm.founding import Founding, cut, found, reaching
from waggledance.swarm.memory import MemoryHub
from waggledance.swarm.router import open_router
from waggledance.swarm.ticket import Role, Ticket, read_ticket, write_ticket
from waggledance.swarm.zenoh import open_zenoh_swarm

ANT, BEE, CICADA = (identity(name).author for name in ("ant", "bee", "cicada"))
SPAWN = multiprocessing.get_context("spawn")


def opened(ticket: Ticket, author: Author, connect: list[str], listen: list[str], session: int = 1) -> Swarm:
    who = identity(author.partition(".")[0], session)
    return open_zenoh_swarm(ticket, who, CARD, connect=connect, listen=listen)


def chatter(
    author: Author, ticket: str, connect: list[str], listen: list[str], peers: int, stop: Event
) -> None:
    """A node process: once it sees so many peers it says something every 20 ms, until it is told to stop."""
    swarm = opened(read_ticket(ticket), author, connect, listen)
    until(lambda: len(swarm.peers()) >= peers)
    index = 0
    while not stop.wait(0.02):
        swarm.publish(group(author, index))
        swarm.drain(PLENTY)
        index += 1
    swarm.close()


@dataclass
class Village:
    """One swarm's nodes: those of this process, and those in processes of their own."""

    founding: Founding
    meeting: str
    ends: ExitStack

    def open(self, author: Author, *, founder: bool = False, session: int = 1) -> Swarm:
        connect, listen = ([], [self.meeting]) if founder else ([self.meeting], [ANY_LOOPBACK_PORT])
        swarm = opened(cut(self.founding), author, connect, listen, session)
        self.ends.callback(swarm.close)
        return swarm

    def spawn(self, author: Author, *, founder: bool = False, peers: int = 1) -> SpawnProcess:
        connect, listen = ([], [self.meeting]) if founder else ([self.meeting], [ANY_LOOPBACK_PORT])
        stop = SPAWN.Event()
        ticket = write_ticket(cut(self.founding))
        node = SPAWN.Process(target=chatter, args=(author, ticket, connect, listen, peers, stop), daemon=True)
        node.start()
        self.ends.callback(_end, node, stop)
        return node


def _end(node: SpawnProcess, stop: Event) -> None:
    if node.exitcode is None:  # whoever was killed may have died holding the event's lock
        stop.set()
        node.join(DEADLINE_S)
        assert node.exitcode == 0, "a node that is told to stop must end by itself"
    node.close()


@pytest.fixture
def village() -> Iterator[Village]:
    with ExitStack() as ends:
        yield Village(found("test"), free_loopback_endpoint(), ends)


def kill(node: SpawnProcess) -> None:
    assert node.pid is not None
    os.kill(node.pid, signal.SIGKILL)
    node.join(DEADLINE_S)


def hears(swarm: Swarm, author: Author) -> bool:
    """Whether something said from now on arrives."""
    swarm.drain(PLENTY)
    until(lambda: any(g.author == author for g in swarm.drain(PLENTY)))
    return True


def sees(swarm: Swarm, *authors: Author) -> bool:
    return set(swarm.peers()) == set(authors) and is_listening(swarm)


def test_eight_processes_hear_each_other_directly(village: Village) -> None:
    ant = village.open(ANT, founder=True)
    others = {identity(f"bee-{number}").author for number in range(7)}
    for author in sorted(others):
        village.spawn(author, peers=7)
    until(lambda: sees(ant, *others))
    # A bee speaks only once it sees seven others itself.
    heard: set[Author] = set()
    until(lambda: heard.update(g.author for g in ant.drain(PLENTY)) or heard == others)


def test_the_others_go_on_when_the_founder_is_killed(village: Village) -> None:
    founder = village.spawn(CICADA, founder=True)
    ant = village.open(ANT)
    village.spawn(BEE, peers=2)
    until(lambda: sees(ant, BEE, CICADA))
    assert hears(ant, BEE)
    kill(founder)
    until(lambda: sees(ant, BEE))
    assert hears(ant, BEE)


def test_a_stuck_peer_holds_nobody_up(village: Village) -> None:
    ant = village.open(ANT, founder=True)
    bee = village.open(BEE)
    stuck = village.spawn(CICADA, peers=2)
    until(lambda: sees(ant, BEE, CICADA) and sees(bee, ANT, CICADA))
    assert stuck.pid is not None
    os.kill(stuck.pid, signal.SIGSTOP)
    try:
        slowest = sorted(_publish_seconds(ant, index) for index in range(300))[-3]
        # 6 MB are more than the sockets take: some of these had to wait for the stuck one, in the courier.
        assert [g.index for g in receive(bee, 300) if g.author == ANT] == list(range(300))
    finally:
        os.kill(stuck.pid, signal.SIGCONT)
    assert slowest < 0.005
    assert hears(ant, CICADA)


def _publish_seconds(swarm: Swarm, index: int) -> float:
    large = group(ANT, index, "x" * 20_000)
    started = time.perf_counter()
    swarm.publish(large)
    return time.perf_counter() - started


def test_closing_is_quick_beside_a_stuck_peer(village: Village) -> None:
    ant = village.open(ANT, founder=True)
    stuck = village.spawn(CICADA)
    assert hears(ant, CICADA)
    assert stuck.pid is not None
    os.kill(stuck.pid, signal.SIGSTOP)
    try:
        for index in range(900):
            ant.publish(group(ANT, index, "x" * 20_000))
        started = time.monotonic()
        ant.close()
        assert time.monotonic() - started < 4
    finally:
        os.kill(stuck.pid, signal.SIGCONT)
    assert ant.traffic().sent_groups + ant.traffic().dropped == 900


def test_two_nodes_find_each_other_without_any_setting(village: Village) -> None:
    ant, bee = (opened(cut(village.founding), author, [], []) for author in (ANT, BEE))
    village.ends.callback(ant.close)
    village.ends.callback(bee.close)
    until(lambda: sees(ant, BEE) and sees(bee, ANT))


def test_a_node_starts_alone_and_joins_when_the_founder_comes(village: Village) -> None:
    started = time.monotonic()
    ant = village.open(ANT)
    assert time.monotonic() - started < 2
    until(lambda: sees(ant))
    village.open(BEE, founder=True)
    until(lambda: sees(ant, BEE))


def test_every_byte_that_leaves_is_told(village: Village) -> None:
    """The courier sends behind the round: what it sends between two rounds belongs to the second."""
    swarm = village.open(ANT, founder=True)
    node = make_node(ANT, MemoryHub(), swarm=swarm)
    for rounds in range(1, 6):
        node.round()
        until(lambda sent=4 * rounds: swarm.traffic().sent_groups == sent)
    node.share([])
    told = [entry.event for entry in node.journal.entries if isinstance(entry.event, Shared)]
    assert sum(shared.bytes for shared in told) == swarm.traffic().sent_bytes > 0


def test_another_swarm_at_the_same_meeting_point_is_neither_seen_nor_heard(village: Village) -> None:
    ant, bee = village.open(ANT, founder=True), village.open(BEE)
    stranger = opened(cut(found("elsewhere")), CICADA, [village.meeting], [])
    village.ends.callback(stranger.close)
    until(lambda: sees(ant, BEE))
    stranger.publish(group(CICADA))
    until(lambda: stranger.traffic().sent_groups == 1)
    bee.publish(group(BEE))
    assert receive(ant, 1) == [group(BEE)]
    assert sees(ant, BEE)
    assert sees(stranger)


def test_a_second_node_of_the_same_key_is_refused(village: Village) -> None:
    """A run's folder that was copied: both would be one author, and each says so of the other."""
    ant, twin, bee = village.open(ANT, founder=True), village.open(ANT, session=2), village.open(BEE)
    until(lambda: sees(bee, ANT) and sees(ant, BEE) and sees(twin, BEE))
    twin.publish(group(ANT))
    until(lambda: (None, "own") in ant.traffic().refused)
    twin.close()


def test_a_restarted_node_is_heard_and_its_old_messages_are_not(village: Village) -> None:
    ant, bee = village.open(ANT, founder=True), village.open(BEE)
    until(lambda: sees(ant, BEE) and sees(bee, ANT))
    bee.publish(group(BEE, 1))
    assert receive(ant, 1) == [group(BEE, 1)]
    bee.close()
    again = village.open(BEE, session=2)
    until(lambda: sees(again, ANT) and sees(ant, BEE))
    again.publish(group(BEE, 2))
    assert receive(ant, 1) == [group(BEE, 2)]
    again.close()
    amnesiac = village.open(BEE)  # as if its folder had been put back to an older state
    until(lambda: sees(amnesiac, ANT) and sees(ant, BEE))
    amnesiac.publish(group(BEE, 3))
    until(lambda: (BEE, "replay") in _refused(ant))


def _refused(swarm: Swarm) -> set[tuple[Author | None, str]]:
    swarm.drain(PLENTY)
    return set(swarm.traffic().refused)


def test_a_member_without_a_valid_ticket_is_not_listened_to(village: Village) -> None:
    ant = village.open(ANT, founder=True)
    expired = cut(village.founding, expires=1)
    late = with_a_clock_of_1970(expired, village.meeting)
    village.ends.callback(late.close)
    until(lambda: sees(ant, CICADA))
    late.publish(group(CICADA))
    until(lambda: (CICADA, "expired") in _refused(ant))


def with_a_clock_of_1970(ticket: Ticket, meeting: str) -> Swarm:
    return open_zenoh_swarm(
        ticket, identity("cicada"), CARD, connect=[meeting], listen=[ANY_LOOPBACK_PORT], clock=lambda: 0.0
    )


def test_a_process_that_forgets_to_close_still_ends() -> None:
    forgetful = (
        "from test_swarm_contract import CARD, identity\n"
        "from waggledance.swarm.founding import cut, found\n"
        "from waggledance.swarm.zenoh import open_zenoh_swarm\n"
        "swarm = open_zenoh_swarm(cut(found('lost')), identity('ant'), CARD, connect=['tcp/127.0.0.1:9'])\n"
        "raise SystemExit(7)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", forgetful], cwd=Path(__file__).parent, timeout=2 * DEADLINE_S, check=False
    )
    assert run.returncode == 7


def test_a_port_that_is_taken_is_one_clear_line(village: Village) -> None:
    village.open(ANT, founder=True)
    with pytest.raises(SwarmError) as caught:
        opened(cut(village.founding), BEE, [], [village.meeting])
    line = str(caught.value)
    assert village.meeting in line
    assert "in use" in line
    assert ".rs" not in line
    assert "\n" not in line


@pytest.mark.parametrize("endpoint", ["nonsense", "pigeon/127.0.0.1:7"])
def test_an_endpoint_that_is_none_is_named(endpoint: str) -> None:
    with pytest.raises(UsageError, match=endpoint):
        opened(cut(found("nowhere")), ANT, [endpoint], [])


def test_a_client_starts_without_its_router_and_says_so() -> None:
    founding = reaching(found("far"), lan=False, routers=(free_loopback_endpoint(),), authority="")
    started = time.monotonic()
    ant = opened(cut(founding), ANT, [], [])
    assert time.monotonic() - started < 1
    ant.publish(group(ANT))
    assert ant.drain(PLENTY) == []
    until(lambda: ant.trouble is not None and founding.routers[0] in ant.trouble)
    ant.close()
    assert ant.traffic().dropped == 1


def test_clients_of_a_router_hear_each_other_and_move_to_the_next_one() -> None:
    routers = (free_loopback_endpoint(), free_loopback_endpoint())
    founding = reaching(found("far"), lan=False, routers=routers, authority="")
    with ExitStack() as ends:
        first = open_router(cut(founding, Role.ROUTER), [routers[0]])
        second = open_router(cut(founding, Role.ROUTER), [routers[1]])
        ends.callback(first.close)
        ends.callback(second.close)
        ant, bee = (opened(cut(founding), author, [], []) for author in (ANT, BEE))
        ends.callback(ant.close)
        ends.callback(bee.close)
        until(lambda: sees(ant, BEE) and sees(bee, ANT))
        ant.publish(group(ANT, 1))
        assert receive(bee, 1) == [group(ANT, 1)]
        first.close()
        heard: list[int] = []

        def said_again() -> bool:
            bee.publish(group(BEE, 2))
            heard.extend(g.index for g in ant.drain(PLENTY))
            return bool(heard)

        until(said_again)
        until(lambda: sees(ant, BEE) and sees(bee, ANT))


def test_a_router_needs_no_key_to_the_messages_and_has_none() -> None:
    ticket = cut(found("far"), Role.ROUTER)
    assert (ticket.seal, ticket.seat, ticket.granted) == (None, None, None)
    with pytest.raises(UsageError, match="router's ticket"):
        opened(ticket, ANT, [], [])
