"""What a network does to a swarm, with real parts: machines, cables, routers, kills, and node processes that
go on through all of it. Limits in seconds are those that people are promised."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cli_run import ENDLESS, SCRIPTED, entries
from country import House, Land, Street, Tap, why_not
from neighbour import Neighbour, Report, Settings, until
from stranger import Stranger
from waggledance.events import Sampled, Started
from waggledance.rollout import Author
from waggledance.swarm.founding import Founding, cut, found, reaching
from waggledance.swarm.links import LEASE_MS, node_config, router_config
from waggledance.swarm.ticket import Role, write_ticket

WHY_NOT = why_not()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")

MEET_S = 5.0
MOVE_S = 15.0
"""From a router to the next one, or back to one that was restarted."""
HEAL_S = 30.0
START_S = 30.0
"""For processes to start, on a machine that is busy: no promise to anybody."""
NOTICED_S = LEASE_MS / 1000 + 10
"""When at the latest somebody who fell silent is no longer here."""
PORT = 7447
RESTARTS = 20


@dataclass
class Village:
    """The machines of one test and the swarm that lives there."""

    land: Land
    street: Street
    folder: Path
    founding: Founding

    def node(self, house: House, name: str, **settings: Any) -> Neighbour:
        """In a folder by its name: who comes again is the same."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        ticket = write_ticket(cut(settings.pop("founding", self.founding)))
        return Neighbour(house.start, Settings(name=name, ticket=ticket, folder=str(folder), **settings))

    def nodes(self, *names: str) -> list[Neighbour]:
        """Each in a house of its own."""
        return [self.node(self.street.house(), name) for name in names]

    def hermit(self) -> Neighbour:
        """Of a swarm of its own: whatever befalls the others, it goes on."""
        alone = reaching(found("alone"), lan=False, routers=(), authority="")
        return self.node(self.street.house(), "hermit", founding=alone)

    def through(self, *houses: House) -> None:
        """From now on tickets name routers in these houses."""
        endpoints = tuple(f"tls/{house.address}:{PORT}" for house in houses)
        self.founding = reaching(self.founding, lan=False, routers=endpoints, authority="")

    def router(self, house: House) -> "subprocess.Popen[str]":
        ticket = write_ticket(cut(self.founding, Role.ROUTER))
        listen = f"tls/{house.address}:{PORT}"
        words = ("router", "--ticket", ticket, "--listen", listen)
        process = house.start(sys.executable, "-m", "waggledance", *words, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline().startswith("router of"), "it listens"
        return process


@pytest.fixture
def village(tmp_path: Path) -> Iterator[Village]:
    with Land() as land:
        founding = reaching(found("village"), lan=True, routers=(), authority="")
        yield Village(land, land.street(), tmp_path, founding)


def exchanging(*nodes: Neighbour) -> "Exchange":
    return Exchange(nodes, {node.author: node.look() for node in nodes})


@dataclass
class Exchange:
    """Whether all hear all of what is said from now on."""

    nodes: tuple[Neighbour, ...]
    before: dict[Author, Report]

    def __call__(self) -> bool:
        now = {node.author: node.look() for node in self.nodes}
        return all(
            len(now[here].heard.get(there, [])) > len(self.before[here].heard.get(there, []))
            for here in now
            for there in now
            if here != there
        )


def meet(*nodes: Neighbour, limit_s: float = START_S) -> None:
    until(exchanging(*nodes), limit_s, "all hear all")


def test_a_land_takes_everything_with_it(tmp_path: Path) -> None:
    """However its process ends: a name, a cable or a process that stayed would be in the next test's way."""
    program = (
        "import os, sys, time; from country import Land\n"
        "land = Land(); house = land.street().house()\n"
        "cable = house.slow((0.0, 0.0), 0.0)\n"
        "sleeper = house.start('sleep', '1000')\n"
        "print(os.stat('/proc/%d/ns/net' % sleeper.pid).st_ino, flush=True); time.sleep(1000)\n"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, cwd=Path(__file__).parent, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        house = int(run.stdout.readline())
        assert house in namespaces()
        run.kill()
    until(lambda: house not in namespaces(), 5, "nobody is left there")


def namespaces() -> set[int]:
    found: set[int] = set()
    for process in Path("/proc").glob("[0-9]*/ns/net"):
        try:
            found.add(os.stat(process).st_ino)
        except OSError:
            continue
    return found


def test_two_machines_meet_on_their_lan_with_nothing_but_the_ticket(village: Village) -> None:
    """The command itself; the seconds are those between the journals' lines."""
    ticket = write_ticket(cut(village.founding))
    journals = [village.folder / name / "journal.jsonl" for name in ("ant", "bee")]
    for journal in journals:
        words = ("--name", journal.parent.name, "--dir", str(journal.parent), "--ticket", ticket)
        village.street.house().start(
            *(
                sys.executable,
                "-m",
                "waggledance",
                "up",
                *words,
                *SCRIPTED,
                *ENDLESS,
                "--policy.success",
                "0.5",
            ),
            cwd=village.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    until(
        lambda: all(learns_from_others_after_s(journal) is not None for journal in journals), START_S, "learn"
    )
    assert max(learns_from_others_after_s(journal) or 0.0 for journal in journals) < MEET_S


def learns_from_others_after_s(journal: Path) -> float | None:
    told = entries(journal) if journal.exists() else []
    start = next((entry.at for entry in told if isinstance(entry.event, Started)), 0.0)
    learnt = (entry.at for entry in told if isinstance(entry.event, Sampled) and entry.event.foreign)
    first = next(learnt, None)
    return None if first is None else first - start


def test_a_lan_without_a_way_out_is_a_lan(village: Village) -> None:
    """Two laptops and a switch."""
    ant, bee = (village.node(village.street.house(way_out=False), name) for name in ("ant", "bee"))
    meet(ant, bee)


def test_links_between_machines_are_encrypted(village: Village) -> None:
    """In an open swarm, where nothing but the link hides what is said."""
    village.founding = reaching(found("open", is_open=True), lan=True, routers=(), authority="")
    marked = "the quick brown fox"
    with Tap(village.land) as tap:
        ant, bee = (village.node(village.street.house(), name, text=marked) for name in ("ant", "bee"))
        meet(ant, bee)
    assert b"\x17\x03\x03" in tap.heard, "that of a TLS record"
    assert marked.encode() not in tap.heard
    assert b"waggle/" not in tap.heard


def test_what_is_said_in_the_clear_can_be_heard_on_the_wire(village: Village) -> None:
    """That the test above can fail."""
    village.founding = reaching(found("open", is_open=True), lan=True, routers=(), authority="")
    marked = "the quick brown fox"
    here, there = village.street.house(), village.street.house()
    door = (f"tcp/{here.address}:{PORT}",)
    with Tap(village.land) as tap:
        ant = village.node(here, "ant", text=marked, listen=door)
        bee = village.node(there, "bee", text=marked, connect=door)
        meet(ant, bee)
    assert marked.encode() in tap.heard
    assert b"waggle/" in tap.heard


def test_a_stranger_on_the_lan_is_neither_seen_nor_heard(village: Village) -> None:
    """Neither one with another swarm's ticket, nor one who found out where ours meets and offers links
    without our key, or without any."""
    other = reaching(found("village"), lan=True, routers=(), authority="")
    cicada = village.node(village.street.house(), "cicada", founding=other)
    cicada.look()
    house = village.street.house()
    stranger = Stranger(house.start, outsider(village.founding, other, house))
    ant, bee = village.nodes("ant", "bee")
    meet(ant, bee)
    heard_meanwhile = exchanging(ant, bee)
    said = cicada.look().said
    until(lambda: heard_meanwhile() and cicada.look().said > said + 40, START_S, "all had time")
    letter = (f"waggle/1/{village.founding.swarm}/groups/{'0/' * 12}{ant.author}", b"\x01 rubbish")
    assert stranger.put(letter) == []
    assert [node.look().peers for node in (ant, bee, cicada)] == [[bee.author], [ant.author], []]
    assert set(cicada.look().heard) == set()
    assert [node.look().refused for node in (ant, bee)] == [{}, {}]


def outsider(ours: Founding, theirs: Founding, house: House) -> dict[str, Any]:
    """A peer at the swarm's own meeting point, which the whole LAN can find out, with doors of both kinds."""
    doors = [f"{protocol}/{house.address}:0" for protocol in ("tcp", "tls")]
    meeting = node_config(cut(ours), (), doors, house.address)["scouting"]
    return node_config(cut(theirs), (), doors, house.address) | {"scouting": meeting}


@pytest.mark.slow
@pytest.mark.alone
def test_a_cut_cable_holds_nobody_up_and_heals(village: Village) -> None:
    ant, bee = village.nodes("ant", "bee")
    far = village.street.house()
    cicada = village.node(far, "cicada")
    meet(ant, bee, cicada)
    everybody = (ant, bee, cicada)
    hermit = village.hermit()
    for node in (hermit, *everybody):
        node.look("fresh")
    far.link.cut()
    started = time.monotonic()
    until(
        lambda: sees(cicada) and sees(ant, bee) and sees(bee, ant), NOTICED_S, "the lost are no longer here"
    )
    until(lambda: f"lost {cicada.author}" in ant.look().news, MEET_S, "and that is told")
    meet(ant, bee)
    until(lambda: time.monotonic() > started + 20, 30, "the lease is long over")
    for node in everybody:
        assert_at_full_pace(node.look(), hermit.look())
    again = exchanging(*everybody)
    far.link.heal()
    until(again, HEAL_S, "exchanging again")
    until(
        lambda: sees(ant, bee, cicada) and sees(bee, ant, cicada) and sees(cicada, ant, bee),
        HEAL_S,
        "all here",
    )


def sees(node: Neighbour, *others: Neighbour) -> bool:
    return node.look().peers == sorted(other.author for other in others)


def assert_at_full_pace(report: Report, hermit: Report) -> None:
    """As fast as one that meets nobody, on a machine that may have other things to do."""
    assert report.rounds > 0.8 * hermit.rounds
    assert report.publish_p99_ms < 5


@pytest.mark.slow
@pytest.mark.alone
def test_a_slow_and_lossy_cable_loses_no_message_and_slows_no_round(village: Village) -> None:
    ant, bee = village.nodes("ant", "bee")
    far = village.street.house()
    cicada = village.node(far, "cicada")
    everybody = (ant, bee, cicada)
    meet(*everybody)
    cable = far.slow(delay_s=(0.05, 0.2), lost=0.07)
    hermit = village.hermit()
    for node in (hermit, *everybody):
        node.look("fresh")
    until(lambda: cicada.look().rounds >= 300, START_S, "fifteen seconds of it")
    for node in everybody:
        assert_at_full_pace(node.look("hush"), hermit.look())
    until(lambda: all(misses(*everybody, who=node) == 0 for node in everybody), HEAL_S, "all has arrived")
    assert cable.set((0.0, 0.0), 0.0)["lost"] > 10


def misses(*nodes: Neighbour, who: Neighbour) -> int:
    """How many of the others' groups have neither arrived nor been counted, from the first one heard on."""
    report = who.look()
    missing = 0
    for other in (node.look() for node in nodes if node is not who):
        heard = report.heard.get(other.author, [])
        assert len(heard) == len(set(heard)), "nothing comes twice"
        missing += other.first + other.said - min(heard, default=other.first) - len(heard)
    return missing - report.dropped


@pytest.mark.slow
@pytest.mark.alone
def test_clients_move_on_when_a_router_is_killed_or_falls_silent(village: Village) -> None:
    houses = [village.street.house() for _ in range(3)]
    village.through(*houses)
    routers = [village.router(house) for house in houses]
    everybody = village.nodes("ant", "bee", "cicada")
    meet(*everybody)
    again = exchanging(*everybody)
    routers[0].kill()
    until(again, MOVE_S, "over the second router")
    houses[1].link.cut()
    again = exchanging(*everybody)
    until(again, MOVE_S, "over the third router")
    until(lambda: all(len(node.look().peers) == 2 for node in everybody), NOTICED_S, "all are here")


@pytest.mark.slow
@pytest.mark.alone
def test_clients_come_back_to_a_router_as_often_as_it_is_restarted(village: Village) -> None:
    house = village.street.house()
    village.through(house)
    router = village.router(house)
    everybody = village.nodes("ant", "bee")
    meet(*everybody)
    for _ in range(RESTARTS):
        router.kill()
        router.wait()
        router = village.router(house)
        until(exchanging(*everybody), MOVE_S, "reconnected")
    until(lambda: all(len(node.look().peers) == 1 for node in everybody), NOTICED_S, "all are here")


@pytest.mark.slow
@pytest.mark.alone
def test_a_killed_node_comes_back_as_the_same(village: Village) -> None:
    ant, bee = village.nodes("ant", "bee")
    home = village.street.house()
    cicada = village.node(home, "cicada")
    meet(ant, bee, cicada)
    for _ in range(5):
        author, before = cicada.author, exchanging(ant, bee)
        cicada.kill()
        until(before, MEET_S, "the others go on")
        cicada = village.node(home, "cicada")
        assert cicada.author == author
        meet(ant, bee, cicada)
        until(lambda: sees(ant, bee, cicada) and sees(cicada, ant, bee), NOTICED_S, "once each")  # noqa: B023
    assert [node.look().refused for node in (ant, bee, cicada)] == [{}, {}, {}]


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("seconds", [12, 60])
def test_a_stopped_node_holds_nobody_up_and_takes_part_again(village: Village, seconds: int) -> None:
    ant, bee, cicada = village.nodes("ant", "bee", "cicada")
    meet(ant, bee, cicada)
    hermit = village.hermit()
    for node in (hermit, ant, bee):
        node.look("fresh")
    cicada.signal(signal.SIGSTOP)
    started = time.monotonic()
    # Groups are larger than a node's own, so that the stopped one's sockets are full long before it wakes.
    until(lambda: time.monotonic() > started + seconds, seconds + 1, "it sleeps")
    meet(ant, bee)
    for node in (ant, bee):
        assert_at_full_pace(node.look("hush"), hermit.look())
    until(lambda: hears_all(ant, bee) and hears_all(bee, ant), HEAL_S, "nobody else loses anything")
    for node in (ant, bee):
        node.look("speak")
    cicada.signal(signal.SIGCONT)
    until(exchanging(ant, bee, cicada), HEAL_S, "it takes part again")


def hears_all(node: Neighbour, other: Neighbour) -> bool:
    report, heard = other.look(), node.look().heard[other.author]
    return set(heard) == set(range(heard[0], report.first + report.said))


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("over", ["loopback", "router"])
def test_fifty_that_start_at_once_find_somebody(village: Village, over: str) -> None:
    house = village.street.house()
    if over == "router":
        village.through(house)
        village.router(house)
    else:
        village.founding = reaching(village.founding, lan=False, routers=(), authority="")
    started = time.monotonic()
    nodes = [village.node(house, f"node-{number}", every_s=0.5) for number in range(50)]
    until(lambda: all(node.look().heard for node in nodes), 60, "all hear somebody")
    until(lambda: all(len(node.look().peers) == 49 for node in nodes), 60, "all see all")
    sys.stderr.write(f"fifty over {over}: {time.monotonic() - started:.1f} s\n")
    assert [node.leave() for node in nodes] == [0] * 50


@pytest.mark.slow
@pytest.mark.alone
def test_two_halves_merge_when_a_link_comes_up(village: Village) -> None:
    other_street = village.land.street()
    near, far = village.street.house(), other_street.house()
    village.through(near, far)
    village.router(near)
    village.router(far)
    ant, bee = village.nodes("ant", "bee")
    cicada, drone = (village.node(other_street.house(), name) for name in ("cicada", "drone"))
    meet(ant, bee)
    meet(cicada, drone)
    assert sees(ant, bee)
    assert sees(cicada, drone)
    whole = exchanging(ant, bee, cicada, drone)
    village.land.join(village.street, other_street)
    until(whole, HEAL_S, "one swarm")
    until(lambda: sees(ant, bee, cicada, drone) and sees(drone, ant, bee, cicada), HEAL_S, "all are here")


@pytest.mark.slow
@pytest.mark.alone
def test_clocks_that_are_an_hour_wrong_stop_nobody(village: Village) -> None:
    names = {"ant": -3600.0, "bee": 0.0, "cicada": 3600.0}
    houses = {name: village.street.house() for name in names}
    nodes = [village.node(houses[name], name, skew_s=skew) for name, skew in names.items()]
    meet(*nodes)
    # Set right, a clock jumps back; what was said before must not make what is said now look old.
    nodes[2].kill()
    nodes[2] = village.node(houses["cicada"], "cicada", skew_s=-3600.0)
    meet(*nodes)
    assert [node.look().refused for node in nodes] == [{}, {}, {}]


@pytest.mark.slow
@pytest.mark.alone
def test_a_lying_router_is_refused_and_counted(village: Village) -> None:
    """It has the links' key and carries everything: it reads keys, not messages, and puts what it likes."""
    house = village.street.house()
    village.through(house)
    village.router(house)
    ant, bee = village.nodes("ant", "bee")
    meet(ant, bee)
    config = router_config(cut(village.founding, Role.ROUTER), village.founding.routers, ())
    liar = Stranger(house.start, config | {"mode": "client"}, f"waggle/1/{village.founding.swarm}/groups/**")
    until(lambda: any(key.endswith(ant.author) for key, _ in liar.put()), START_S, "it listens in")
    key, sealed = next(letter for letter in liar.put() if letter[0].endswith(ant.author))
    assert b"four" not in sealed
    lies = [
        (key, sealed),
        (key.replace(ant.author, bee.author), sealed),
        (key.replace("/0/", "/1/", 1) if "/0/" in key else key.replace("/1/", "/0/", 1), sealed),
        (key, sealed[:-1] + bytes([sealed[-1] ^ 1])),
        (key, b"\x01" + b"x" * 1000),
        (key, b"\x02" + sealed[1:]),
        (key, b"x" * 300_000),
        (key, b""),
    ]
    liar.put(*lies)
    expected = {"own": 1, "replay": 1, "seal": 3, "version 2": 1, "oversize": 1, "malformed": 1}
    until(lambda: sum(bee.look().refused.values()) >= sum(expected.values()), START_S, "counted")
    assert bee.look().refused == expected
    meet(ant, bee)
