"""Zenoh between real processes: joining, being killed, being stuck, and what goes wrong at opening."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.context import SpawnProcess
from multiprocessing.synchronize import Event

import pytest

from swarm_run import make_node
from test_swarm_contract import DEADLINE_S, group, receive, until
from waggledance.errors import SwarmError, UsageError
from waggledance.events import Shared
from waggledance.rollout import Author
from waggledance.seams import Swarm
from waggledance.swarm.memory import MemoryHub
from waggledance.swarm.zenoh import ANY_LOOPBACK_PORT, free_loopback_endpoint, open_zenoh_swarm

ANT, BEE, CICADA = Author("ant"), Author("bee"), Author("cicada")
SPAWN = multiprocessing.get_context("spawn")


def chatter(
    author: Author, swarm_name: str, connect: list[str], listen: list[str], peers: int, stop: Event
) -> None:
    """A node process: once it sees so many peers it says something every 20 ms, until it is told to stop."""
    swarm = open_zenoh_swarm(author, swarm_name, connect, listen)
    until(lambda: len(swarm.peers()) >= peers)
    index = 0
    while not stop.wait(0.02):
        swarm.publish(group(author, index))
        swarm.drain()
        index += 1
    swarm.close()


@dataclass
class Village:
    """One swarm's nodes: those of this process, and those in processes of their own."""

    name: str
    meeting: str
    ends: ExitStack

    def open(self, author: Author, *, founder: bool = False) -> Swarm:
        connect, listen = ([], [self.meeting]) if founder else ([self.meeting], [ANY_LOOPBACK_PORT])
        swarm = open_zenoh_swarm(author, self.name, connect, listen)
        self.ends.callback(swarm.close)
        return swarm

    def spawn(self, author: Author, *, founder: bool = False, peers: int = 1) -> SpawnProcess:
        connect, listen = ([], [self.meeting]) if founder else ([self.meeting], [ANY_LOOPBACK_PORT])
        stop = SPAWN.Event()
        node = SPAWN.Process(
            target=chatter, args=(author, self.name, connect, listen, peers, stop), daemon=True
        )
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
        yield Village(f"test-{uuid.uuid4().hex}", free_loopback_endpoint(), ends)


def kill(node: SpawnProcess) -> None:
    assert node.pid is not None
    os.kill(node.pid, signal.SIGKILL)
    node.join(DEADLINE_S)


def hears(swarm: Swarm, author: Author) -> bool:
    """Whether something said from now on arrives."""
    swarm.drain()
    until(lambda: any(g.author == author for g in swarm.drain()))
    return True


def sees(swarm: Swarm, *authors: Author) -> bool:
    return swarm.peers() == frozenset(authors)


def test_eight_processes_hear_each_other_directly(village: Village) -> None:
    ant = village.open(ANT, founder=True)
    others = {Author(f"bee-{number}") for number in range(7)}
    for author in sorted(others):
        village.spawn(author, peers=7)
    until(lambda: sees(ant, *others))
    # A bee speaks only once it sees seven others itself.
    heard: set[Author] = set()
    until(lambda: heard.update(g.author for g in ant.drain()) or heard == others)


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
    ant, bee = (open_zenoh_swarm(author, village.name) for author in (ANT, BEE))
    village.ends.callback(ant.close)
    village.ends.callback(bee.close)
    until(lambda: sees(ant, BEE) and sees(bee, ANT))


def test_a_node_starts_alone_and_joins_when_the_founder_comes(village: Village) -> None:
    started = time.monotonic()
    ant = village.open(ANT)
    assert time.monotonic() - started < 2
    assert sees(ant)
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
    stranger = open_zenoh_swarm(CICADA, "elsewhere", [village.meeting])
    village.ends.callback(stranger.close)
    until(lambda: sees(ant, BEE))
    stranger.publish(group(CICADA))
    until(lambda: stranger.traffic().sent_groups == 1)
    bee.publish(group(BEE))
    assert receive(ant, 1) == [group(BEE)]
    assert sees(ant, BEE)
    assert sees(stranger)


def test_a_second_node_of_the_same_name_is_refused(village: Village) -> None:
    ant, twin, bee = village.open(ANT, founder=True), village.open(ANT), village.open(BEE)
    until(lambda: sees(bee, ANT) and sees(ant, BEE) and sees(twin, BEE))
    twin.publish(group(ANT))
    until(lambda: ant.traffic().refused == {"own": 1})
    twin.close()
    # The name is here as long as one of its sessions is.
    ant.publish(group(ANT, 5))
    until(lambda: any(g.index == 5 for g in bee.drain()))
    assert sees(bee, ANT)


def test_a_process_that_forgets_to_close_still_ends() -> None:
    forgetful = (
        "from waggledance.swarm.zenoh import open_zenoh_swarm\n"
        "swarm = open_zenoh_swarm('ant', 'forgotten', ['tcp/127.0.0.1:9'])\n"
        "raise SystemExit(7)\n"
    )
    assert subprocess.run([sys.executable, "-c", forgetful], timeout=DEADLINE_S, check=False).returncode == 7


def test_a_port_that_is_taken_is_one_clear_line(village: Village) -> None:
    village.open(ANT, founder=True)
    with pytest.raises(SwarmError) as caught:
        open_zenoh_swarm(BEE, village.name, listen=[village.meeting])
    line = str(caught.value)
    assert village.meeting in line
    assert "in use" in line
    assert ".rs" not in line
    assert "\n" not in line


@pytest.mark.parametrize("endpoint", ["nonsense", "pigeon/127.0.0.1:7"])
def test_an_endpoint_that_is_none_is_named(endpoint: str) -> None:
    with pytest.raises(SwarmError, match=endpoint):
        open_zenoh_swarm(ANT, "nowhere", [endpoint])


@pytest.mark.parametrize(("author", "swarm_name"), [("a/b", "s"), ("**", "s"), ("ant", ""), ("ant", "s\n")])
def test_names_that_are_none_are_refused(author: str, swarm_name: str) -> None:
    with pytest.raises(UsageError, match="letters, digits"):
        open_zenoh_swarm(Author(author), swarm_name)
