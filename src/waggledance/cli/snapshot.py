"""The snapshot: what a node knows of itself and its swarm right now, in a file that others may read.

Written over the old one after a round, at most once a second; `waggle status` reads it from outside. What is
past stands in the journal.
"""

import os
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from waggledance.rollout import Author
from waggledance.seams import Swarm

SNAPSHOT = "status.json"
EVERY_S = 1.0
PEERS_LIMIT = 512


class PeerLine(msgspec.Struct, frozen=True):
    author: Author
    since: float
    """Seconds since 1970, by the node's clock."""
    model: str | None
    weights: int | None
    version: str | None
    sources: dict[str, str]
    """Task sources and their digests, as it tells."""
    round: int | None
    rounds_per_minute: float | None


class Snapshot(msgspec.Struct, frozen=True):
    at: float
    pid: int
    swarm: str
    """Its name; empty for a node that meets nobody."""
    peers: tuple[PeerLine, ...]
    sent_groups: int
    sent_bytes: int
    received_groups: int
    received_bytes: int
    dropped: int
    listening: float
    trouble: str | None
    """Why there is no link at all."""


def peer_lines(swarm: Swarm) -> tuple[PeerLine, ...]:
    lines: list[PeerLine] = []
    for peer in list(swarm.peers().values())[:PEERS_LIMIT]:
        card = peer.card
        lines.append(
            PeerLine(
                author=peer.author,
                since=peer.since,
                model=card.model if card else None,
                weights=card.weights if card else None,
                version=card.version if card else None,
                sources={str(name): str(digest) for name, digest in card.sources.items()} if card else {},
                round=card.round if card else None,
                rounds_per_minute=card.rounds_per_minute if card else None,
            )
        )
    return tuple(lines)


class Snapshots:
    def __init__(self, folder: Path, swarm_name: str, swarm: Swarm) -> None:
        self._path = folder / SNAPSHOT
        self._swarm_name = swarm_name
        self._swarm = swarm
        self._due = 0.0

    def write(self) -> None:
        """Where the disk is full the old one stays: the journal, which matters more, will say so."""
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + EVERY_S
        traffic = self._swarm.traffic()
        snapshot = Snapshot(
            at=time.time(),
            pid=os.getpid(),
            swarm=self._swarm_name,
            peers=peer_lines(self._swarm),
            sent_groups=traffic.sent_groups,
            sent_bytes=traffic.sent_bytes,
            received_groups=traffic.received_groups,
            received_bytes=traffic.received_bytes,
            dropped=traffic.dropped,
            listening=traffic.listening,
            trouble=self._swarm.trouble,
        )
        beside = self._path.with_name(f".{self._path.name}.new")
        with suppress(OSError):
            beside.write_bytes(msgspec.json.encode(snapshot))
            os.replace(beside, self._path)


def read_snapshot(folder: Path) -> Snapshot | None:
    try:
        return msgspec.json.decode((folder / SNAPSHOT).read_bytes(), type=Snapshot)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
