"""One process of a measured swarm: a router, or a node with everything a node has but a language model.

`python -m waggledance.bench.resident` takes its settings (JSON) as the first line on standard input; every
further line is answered with a `Report`, and `fresh` begins its figures anew. It ends with its input, so none
outlives whoever started it. `crowd` is the other end.
"""

import contextlib
import os
import resource
import select
import socket
import stat
import struct
import sys
import time
from pathlib import Path

import msgspec

from waggledance.bench.pupil import Pupil, Skill
from waggledance.bench.stamped import Stamped
from waggledance.config import MixConfig, PoolConfig
from waggledance.journal import Journal
from waggledance.node import Node, NodeSettings
from waggledance.rollout import Author
from waggledance.seams import Card
from waggledance.sharing.fixed import Fixed
from waggledance.sharing.pool import Pool
from waggledance.swarm.ear import ADDRESSES, ear_of
from waggledance.swarm.identity import open_identity
from waggledance.swarm.router import open_router
from waggledance.swarm.ticket import read_ticket
from waggledance.swarm.zenoh import WINDOWS, ZenohSwarm, open_zenoh_swarm

MIX, POOL = MixConfig(), PoolConfig()
"""A node's defaults, here as everywhere."""
READY = "ready"
SUCCESS_ABILITY = -0.85
"""Right three times in ten: nearly every group carries signal."""
_BYTES_ACKED, _TCP_INFO_BYTES = 120, 136
"""Where Linux says in tcp_info how many bytes were acknowledged and, next, received."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    ticket: str
    folder: str
    listen: str | None = None
    """Where a router listens; None for a node."""
    round_s: float = 1.0
    """A node's rounds begin so far apart."""
    phase: float = 0.0
    """What part of a round after the others it begins."""
    text_characters: int = 0
    completions: int = 8
    seed: int = 1


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Figures since the last `fresh`; the stamps since the start."""

    author: Author
    rounds: int
    late_rounds: int
    """Rounds that began more than half a round late: the machine had no time."""
    seconds: float
    cpu_s: float
    rss_mb: float
    tcp_bytes: int
    """All that went through its sockets, both ways."""
    sent_groups: int
    received_groups: int
    group_bytes: int
    """Messages that hold groups, both ways, without their keys."""
    outbox_dropped: int
    inbox_dropped: int
    refused: int
    peers: int
    start: int
    """Where its ear begins on the circle of addresses."""
    ears: list[tuple[float, int]]
    """When it became how wide."""
    sent: list[tuple[int, int, float]]
    heard: list[tuple[int, int, float]]


def main() -> None:
    # Not input(): what it reads ahead would never be seen by select.
    words = _line()
    settings = msgspec.json.decode(words, type=Settings)
    if settings.listen is not None:
        _relay(settings, settings.listen)
    else:
        resident = Resident(settings)
        _say(READY.encode())
        resident.live()


def _say(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


def _line() -> bytes:
    words = b""
    while not words.endswith(b"\n"):
        more = os.read(sys.stdin.fileno(), 1 << 16)
        if not more:
            break
        words += more
    return words


def _relay(settings: Settings, listen: str) -> None:
    relay = open_router(read_ticket(settings.ticket), [listen])
    _say(READY.encode())
    while os.read(sys.stdin.fileno(), 1 << 10):
        pass
    relay.close()


class Resident:
    def __init__(self, settings: Settings) -> None:
        folder = Path(settings.folder)
        identity = open_identity(folder, settings.name, time.time())
        skill = Skill(settings.text_characters)
        self._author = identity.author
        self._settings = settings
        self._out, self._in = Stamped(time.monotonic), Stamped(time.monotonic)
        self._swarm: ZenohSwarm = open_zenoh_swarm(
            read_ticket(settings.ticket),
            identity,
            Card("scripted", 0, "bench", {skill.name: skill.digest}),
            windows=folder / WINDOWS,
            inbox=self._in,
            outbox=self._out,
        )
        self._journal = Journal(identity.author, time.time)
        pupil = Pupil(skill, SUCCESS_ABILITY, learning_rate=0.0)
        self._node = Node(
            NodeSettings(
                identity.author,
                settings.seed,
                settings.completions,
                "everything",
                POOL.verify_limit_groups,
            ),
            sources=(skill,),
            verifier=skill,
            policy=pupil,
            learner=pupil,
            mix=Fixed(MIX.own, MIX.foreign),
            pool=Pool(limit_groups=POOL.limit_groups, max_age_rounds=POOL.max_age_rounds),
            swarm=self._swarm,
            journal=self._journal,
        )
        self._ears: list[tuple[float, int]] = []
        self._late = 0
        self._zero = self._counted()

    def live(self) -> None:
        due = time.monotonic() + self._settings.phase * self._settings.round_s
        while self._answer_until(due):
            now = time.monotonic()
            if now - due > self._settings.round_s / 2:
                self._late += 1
                due = now
            self._node.round()
            self._journal.entries.clear()
            self._note_ear()
            due += self._settings.round_s
        self._swarm.close()

    def _note_ear(self) -> None:
        width = round(self._swarm.traffic().listening * ADDRESSES)
        if not self._ears or self._ears[-1][1] != width:
            self._ears.append((time.monotonic(), width))

    def _answer_until(self, due: float) -> bool:
        """False where asking is over."""
        while True:
            wait_s = max(0.0, due - time.monotonic())
            if not select.select([sys.stdin], [], [], wait_s)[0]:
                return True
            word = os.read(sys.stdin.fileno(), 1 << 10)
            if not word:
                return False
            if word == b"fresh\n":
                self._late = 0
                self._zero = self._counted()
            _say(msgspec.json.encode(self._report(stamps=word != b"fresh\n")))

    def _counted(self) -> dict[str, float]:
        traffic = self._swarm.traffic()
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "rounds": self._node.round_number,
            "seconds": time.monotonic(),
            "cpu_s": used.ru_utime + used.ru_stime,
            "tcp_bytes": _socket_bytes(),
            "sent_groups": traffic.sent_groups,
            "received_groups": traffic.received_groups,
            "group_bytes": traffic.sent_bytes + traffic.received_bytes,
            "outbox_dropped": self._out.gone,
            "inbox_dropped": self._in.gone,
            "refused": sum(traffic.refused.values()),
        }

    def _report(self, *, stamps: bool) -> Report:
        counted = {name: value - self._zero[name] for name, value in self._counted().items()}
        seconds, cpu_s = counted.pop("seconds"), counted.pop("cpu_s")
        return Report(
            author=self._author,
            late_rounds=self._late,
            seconds=seconds,
            cpu_s=cpu_s,
            rss_mb=_rss_mb(),
            peers=len(self._swarm.peers()),
            start=ear_of(self._author).start,
            ears=self._ears,
            sent=self._out.stamps if stamps else [],
            heard=self._in.stamps if stamps else [],
            **{name: int(value) for name, value in counted.items()},
        )


def _rss_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 1e6


def _socket_bytes() -> int:
    """Over all of this process's connections, both ways, as the kernel counts them."""
    total = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # it is gone already, or no TCP socket
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                with socket.socket(fileno=os.dup(int(name))) as held:
                    info = held.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
                total += sum(struct.unpack_from("QQ", info, _BYTES_ACKED))
    return total


if __name__ == "__main__":
    main()
