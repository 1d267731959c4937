"""A node for fault tests: a process that does light rounds in a swarm and tells what it met when it is asked.

`python neighbour.py SETTINGS` (JSON, see `Settings`); every line on standard input is answered with a line of
JSON (`Report`); `speak` and `hush` begin and end its publishing, `fresh` its figures. It ends with its
input. `Neighbour` is the other end. A round is a node's without the thinking: publish, drain, look around.
"""

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from waggledance.events import Parted
from waggledance.rollout import Author, Group, Rollout
from waggledance.seams import Card, Swarm
from waggledance.swarm.identity import open_identity
from waggledance.swarm.ticket import read_ticket
from waggledance.swarm.zenoh import WINDOWS, open_zenoh_swarm
from waggledance.task import Digest, SourceName

PATIENCE_S = 30.0
"""How long a process may take to answer on a busy machine."""
EVERYTHING = 10_000.0
CARD = Card("scripted", 0, "0.1.0", {SourceName("arithmetic"): Digest("d1")})


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    ticket: str
    folder: str
    interface: str | None = None
    connect: tuple[str, ...] = ()
    listen: tuple[str, ...] = ()
    every_s: float = 0.05
    text: str = "four"
    skew_s: float = 0.0
    """How wrong its clock is."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    author: Author
    said: int
    """Groups published; they are numbered from `first` on."""
    first: int
    heard: dict[Author, list[int]]
    """The numbers of each author's groups, in the order in which they came."""
    peers: list[Author]
    news: list[str]
    refused: dict[str, int]
    dropped: int
    sent: int
    rounds: int
    slowest_round_ms: float
    publish_p99_ms: float
    listens: bool
    trouble: str | None


def main(settings: Settings) -> None:
    folder = Path(settings.folder)

    def clock() -> float:
        return time.time() + settings.skew_s

    identity = open_identity(folder, settings.name, clock())
    swarm = open_zenoh_swarm(
        read_ticket(settings.ticket),
        identity,
        CARD,
        connect=settings.connect,
        listen=settings.listen,
        interface=settings.interface,
        windows=folder / WINDOWS,
        clock=clock,
    )
    life = Life(swarm, identity.author, identity.session << 20, settings)
    while life.answer():
        life.round()
    swarm.close()


class Life:
    def __init__(self, swarm: Swarm, author: Author, first: int, settings: Settings) -> None:
        self._swarm = swarm
        self._author = author
        self._settings = settings
        self._first = first
        self._said = 0
        self._speaks = True
        self._heard: dict[Author, list[int]] = {}
        self._news: list[str] = []
        self._next = time.monotonic()
        self._fresh()

    def round(self) -> None:
        started = time.perf_counter()
        if self._speaks:
            rollout = Rollout(self._settings.text, finished=True, tokens=2, mean_logprob=-0.5)
            index = self._first + self._said
            group = Group(self._author, self._said, SourceName("arithmetic"), Digest("d1"), index, (rollout,))
            began = time.perf_counter()
            self._swarm.publish(group)
            self._publishing_s.append(time.perf_counter() - began)
            self._said += 1
        for heard in self._swarm.drain(EVERYTHING):
            self._heard.setdefault(heard.author, []).append(heard.index)
        self._swarm.peers()
        for event in self._swarm.news():
            self._news.append(f"{event.why if isinstance(event, Parted) else 'met'} {event.author}")
        self._rounds_s.append(time.perf_counter() - started)

    def answer(self) -> bool:
        """Waits until the next round is due, and does what is asked meanwhile; false where asking is over."""
        self._next = max(self._next + self._settings.every_s, time.monotonic())
        while True:
            wait_s = max(0.0, self._next - time.monotonic())
            if not select.select([sys.stdin], [], [], wait_s)[0]:
                return True
            word = os.read(sys.stdin.fileno(), 1 << 10).decode()
            if not word:
                return False
            if word == "fresh\n":
                self._fresh()
            self._speaks = (self._speaks or word == "speak\n") and word != "hush\n"
            sys.stdout.write(msgspec.json.encode(self._report()).decode() + "\n")
            sys.stdout.flush()

    def _fresh(self) -> None:
        self._rounds_s: list[float] = []
        self._publishing_s: list[float] = []

    def _report(self) -> Report:
        traffic = self._swarm.traffic()
        refused: dict[str, int] = {}
        for (_, reason), count in traffic.refused.items():
            refused[reason] = refused.get(reason, 0) + count
        publishing = sorted(self._publishing_s)
        return Report(
            author=self._author,
            said=self._said,
            first=self._first,
            heard=self._heard,
            peers=sorted(self._swarm.peers()),
            news=self._news,
            refused=refused,
            dropped=traffic.dropped,
            sent=traffic.sent_groups,
            rounds=len(self._rounds_s),
            slowest_round_ms=1000 * max(self._rounds_s, default=0.0),
            publish_p99_ms=1000 * publishing[int(0.99 * len(publishing))] if publishing else 0.0,
            listens=bool(getattr(self._swarm, "listens", True)),
            trouble=self._swarm.trouble,
        )


class Start(Protocol):
    """How a command is started, in a house or anywhere else."""

    def __call__(self, *command: str, **how: object) -> "subprocess.Popen[str]": ...


class Neighbour:
    """One node process, as its test sees it."""

    def __init__(self, start: Start, settings: Settings) -> None:
        written = msgspec.json.encode(settings).decode()
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "bufsize": 1}
        self.process = start(sys.executable, __file__, written, **pipes)
        self.settings = settings
        self._author: Author | None = None

    @property
    def author(self) -> Author:
        if self._author is None:
            self._author = self.look().author
        return self._author

    def look(self, word: str = "look") -> Report:
        asked, answers = self.process.stdin, self.process.stdout
        assert asked is not None
        assert answers is not None
        asked.write(f"{word}\n")
        ready = select.select([answers], [], [], PATIENCE_S)[0]
        line = answers.readline() if ready else ""
        assert line, f"{self.settings.name} does not answer; it ended with {self.process.poll()}"
        return msgspec.json.decode(line, type=Report)

    def heard(self, author: Author) -> int:
        return len(self.look().heard.get(author, []))

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def leave(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(PATIENCE_S)


def until(true: Callable[[], bool], limit_s: float, what: str) -> float:
    """Waits for others; how long it took."""
    started = time.monotonic()
    while not true():
        assert time.monotonic() - started < limit_s, f"not within {limit_s:g} s: {what}"
        time.sleep(0.05)
    return time.monotonic() - started


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=Settings))
