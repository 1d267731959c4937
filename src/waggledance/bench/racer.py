"""One process of our side in `latency`: a node's end of a swarm that publishes what it is told, or drains
until it holds it.

The same lines on standard input and output as `hivemind_racer`: first a list, here with the swarm's ticket,
then `publish KEY BYTES` and `hold KEY PAUSE_S`. What is held has been opened, its signature checked, decoded.
"""

import json
import os
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path

from waggledance.rollout import Group, Rollout
from waggledance.seams import Card
from waggledance.swarm.identity import open_identity
from waggledance.swarm.mailbox import Letter, Ring
from waggledance.swarm.ticket import read_ticket
from waggledance.swarm.zenoh import WINDOWS, ZenohSwarm, open_zenoh_swarm
from waggledance.task import Digest, SourceName

SOURCE, DIGEST = SourceName("race"), Digest("race-1")
EVERYTHING = 10_000.0
ROLLOUTS = 8


class Bell:
    """A queue of letters that wakes whoever waits for one: seven that look every half millisecond would take
    the processor from those who work."""

    def __init__(self) -> None:
        self._ring = Ring()
        self._rung = threading.Event()

    def put(self, letter: Letter) -> int:
        gone = self._ring.put(letter)
        self._rung.set()
        return gone

    @property
    def arrived(self) -> int:
        return self._ring.arrived

    def take(self) -> Letter | None:
        return self._ring.take()

    def take_all(self) -> deque[Letter]:
        return self._ring.take_all()

    def wait(self, limit_s: float) -> None:
        self._rung.wait(limit_s)
        self._rung.clear()


class Racer:
    def __init__(self, ticket: str, folder: Path) -> None:
        identity = open_identity(folder, "racer", time.time())
        self._author = identity.author
        card = Card("scripted", 0, "bench", {SOURCE: DIGEST})
        self._bell = Bell()
        self._swarm: ZenohSwarm = open_zenoh_swarm(
            read_ticket(ticket), identity, card, windows=folder / WINDOWS, inbox=self._bell
        )
        self._held: set[int] = set()

    def met(self, others: int) -> bool:
        return self._swarm.listens and len(self._swarm.peers()) >= others

    def publish(self, key: int, length: int) -> float:
        text = os.urandom(length // ROLLOUTS // 2).hex()
        rollouts = tuple(Rollout(text, finished=True, tokens=9, mean_logprob=-1.0) for _ in range(ROLLOUTS))
        group = Group(self._author, key, SOURCE, DIGEST, key, rollouts)
        began = time.monotonic()
        self._swarm.publish(group)
        return began

    def hold(self, key: int, pause_s: float) -> float:
        while True:
            self._held.update(group.index for group in self._swarm.drain(EVERYTHING))
            if key in self._held:
                return time.monotonic()
            self._bell.wait(pause_s)

    def close(self) -> None:
        self._swarm.close()


def main() -> None:
    [ticket, others] = json.loads(sys.stdin.readline())
    with tempfile.TemporaryDirectory(prefix="waggle-racer-") as folder:
        racer = Racer(ticket, Path(folder))
        while not racer.met(others):
            time.sleep(0.05)
        _say("ready")
        for line in sys.stdin:
            word, key, amount = line.split()
            if word == "publish":
                _say(racer.publish(int(key), int(amount)))
            else:
                _say("asking")
                _say(racer.hold(int(key), float(amount)))
        racer.close()


def _say(what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
