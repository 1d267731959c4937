"""Processes for the flood test: `python flood_run.py honest|flooder SETTINGS` (JSON, see `Settings`).

An honest node does rounds of a fixed piece of work, publishes and drains as a node does, and answers every
line on its input with a line of JSON (`Report`) about what it did since the last one. A flooder is a member
gone bad: it signs as many messages as it will need, then puts so many a second between `go` and `hush`.
Both end with their input.
"""

import os
import select
import sys
import time
from pathlib import Path

import msgspec
import zenoh

from waggledance.rollout import Author, Group, Rollout
from waggledance.seams import Card
from waggledance.swarm.ear import address_of
from waggledance.swarm.identity import Identity, open_identity
from waggledance.swarm.key import GROUPS, key_of
from waggledance.swarm.links import node_config
from waggledance.swarm.seal import SwarmSeal
from waggledance.swarm.ticket import read_ticket
from waggledance.swarm.window import Windows
from waggledance.swarm.wire import encode
from waggledance.swarm.zenoh import open_session, open_zenoh_swarm
from waggledance.task import Digest, SourceName

WORK_STEPS = 150_000
"""Of pure Python, so that every message that comes in competes for the interpreter."""
PAUSE_S = 0.1
"""Of every round: what a node waits for a device, so that four of them fit on two processors."""
GROUPS_A_ROUND = 1
WANTED = 128.0
BURSTS_A_SECOND = 50


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    ticket: str
    folder: str
    connect: tuple[str, ...] = ()
    listen: tuple[str, ...] = ()
    a_second: int = 1000
    messages: int = 0
    """A flooder's, in all."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    author: Author
    round_ms: list[float]
    cpu_ms: float
    """Of the whole process, since the last look."""
    rss_mb: float
    published: int
    heard: dict[Author, int]
    refused: dict[str, int]
    put: int = 0


def a_group(author: Author, number: int) -> Group:
    rollouts = tuple(Rollout(f"<answer>{number}</answer> " + "x" * 60, True, 20, -0.5) for _ in range(8))
    return Group(author, number, SourceName("arithmetic"), Digest("d1"), number, rollouts)


def rss_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def asked(wait_s: float) -> str | None:
    """What stands on the input after so long at most: nothing, or None where it has ended."""
    if not select.select([sys.stdin], [], [], wait_s)[0]:
        return ""
    return os.read(sys.stdin.fileno(), 1 << 10).decode() or None


def answer(report: Report) -> None:
    sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
    sys.stdout.flush()


def honest(settings: Settings, identity: Identity) -> None:
    swarm = open_zenoh_swarm(
        read_ticket(settings.ticket),
        identity,
        Card("scripted", 0, "0.1.0", {}),
        connect=settings.connect,
        listen=settings.listen,
        windows=Path(settings.folder) / "heard",
    )
    published = 0
    began = time.perf_counter()
    round_ms: list[float] = []
    heard: dict[Author, int] = {}
    cpu_s, told = time.process_time(), dict[tuple[Author | None, str], int]()
    while (word := asked(PAUSE_S)) is not None:
        if word:
            now, refused = swarm.traffic().refused, dict[str, int]()
            for (author, reason), count in now.items():
                refused[reason] = refused.get(reason, 0) + count - told.get((author, reason), 0)
            told = dict(now)
            cpu_ms, cpu_s = 1000 * (time.process_time() - cpu_s), time.process_time()
            answer(
                Report(
                    author=identity.author,
                    round_ms=round_ms,
                    cpu_ms=cpu_ms,
                    rss_mb=rss_mb(),
                    published=published,
                    heard=heard,
                    refused=refused,
                )
            )
            published, round_ms, heard = 0, [], {}
        sum(number * number % 7 for number in range(WORK_STEPS))
        for _ in range(GROUPS_A_ROUND):
            swarm.publish(a_group(identity.author, identity.next_sequence() % 2**40))
            published += 1
        for group in swarm.drain(WANTED):
            heard[group.author] = heard.get(group.author, 0) + 1
        swarm.peers()
        ended = time.perf_counter()
        round_ms.append(1000 * (ended - began))
        began = ended
    swarm.close()


def flooder(settings: Settings, identity: Identity) -> None:
    ticket = read_ticket(settings.ticket)
    seal = SwarmSeal(ticket, identity, Windows(), time.time)
    letters: list[tuple[str, bytes]] = []
    for _ in range(settings.messages):
        sequence = identity.next_sequence()
        key = key_of(ticket.swarm, GROUPS, address_of(identity.author, sequence), identity.author)
        letters.append((key, seal.close(key, sequence, encode(a_group(identity.author, sequence % 2**40)))))
    session = open_session(node_config(ticket, settings.connect, settings.listen, None))
    os.nice(19)  # from here on it stands for another machine, which has a processor of its own
    put, goes, due = 0, False, time.monotonic()
    while (word := asked(max(0.0, due - time.monotonic()))) is not None:
        if word:
            goes, due = word == "go\n", time.monotonic()
            answer(
                Report(
                    author=identity.author,
                    round_ms=[],
                    cpu_ms=0.0,
                    rss_mb=rss_mb(),
                    published=0,
                    heard={},
                    refused={},
                    put=put,
                )
            )
        if not goes:
            due = time.monotonic() + 1
            continue
        for key, message in letters[put : put + settings.a_second // BURSTS_A_SECOND]:
            session.put(  # pyright: ignore[reportUnknownMemberType]
                key, message, congestion_control=zenoh.CongestionControl.DROP
            )
            put += 1
        due = max(due + 1 / BURSTS_A_SECOND, time.monotonic() - 0.2)
    session.close()  # pyright: ignore[reportUnknownMemberType]


if __name__ == "__main__":
    read = msgspec.json.decode(sys.argv[2], type=Settings)
    who = open_identity(Path(read.folder), read.name, time.time())
    {"honest": honest, "flooder": flooder}[sys.argv[1]](read, who)
