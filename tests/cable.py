"""A cable that delays and loses: copies Ethernet frames between two cards, where the kernel has no netem.

`python cable.py CARD CARD SEED`; every line on standard input, `{"delay_s": [least, most], "lost": share}`,
sets how, for each way by itself, and is answered by a line with what was carried and lost. The order of
frames is kept, as on one path; it ends with its input.
"""

import json
import random
import select
import socket
import sys
import time
from collections import deque

EVERY_PROTOCOL = 0x0003
PACKET_IGNORE_OUTGOING = 23
SOL_PACKET = 263
LONGEST_FRAME = 1 << 16
MOST_FRAMES = 1000
"""On their way in one direction, as in a router's queue: what comes beyond is lost."""


class Way:
    """One direction."""

    def __init__(self, source: socket.socket, target: socket.socket, draw: random.Random) -> None:
        self.source = source
        self.carried = self.lost = 0
        self._target = target
        self._draw = draw
        self._under_way: deque[tuple[float, bytes]] = deque()

    def take(self, now: float, delay_s: tuple[float, float], lost: float) -> None:
        frame = self.source.recv(LONGEST_FRAME)
        if self._draw.random() < lost or len(self._under_way) >= MOST_FRAMES:
            self.lost += 1
            return
        due = now + self._draw.uniform(*delay_s)
        if self._under_way:
            due = max(due, self._under_way[-1][0])
        self._under_way.append((due, frame))

    @property
    def due(self) -> float:
        return self._under_way[0][0] if self._under_way else float("inf")

    def deliver(self, now: float) -> None:
        while self._under_way and self._under_way[0][0] <= now:
            self._target.send(self._under_way.popleft()[1])
            self.carried += 1


def card(name: str) -> socket.socket:
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    end.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    end.bind((name, EVERY_PROTOCOL))
    return end


def main(one_name: str, other_name: str, seed: int) -> None:
    one, other = card(one_name), card(other_name)
    draw = random.Random(seed)
    ways = {one: Way(one, other, draw), other: Way(other, one, draw)}
    delay_s, lost = (0.0, 0.0), 0.0
    while True:
        due = min(way.due for way in ways.values())
        wait_s = None if due == float("inf") else max(0.0, due - time.monotonic())
        ready, _, _ = select.select([sys.stdin, *ways], [], [], wait_s)
        now = time.monotonic()
        for end, way in ways.items():
            if end in ready:
                way.take(now, delay_s, lost)
            way.deliver(now)
        if sys.stdin in ready:
            line = sys.stdin.readline()
            if not line:
                return
            said = json.loads(line)
            delay_s, lost = (said["delay_s"][0], said["delay_s"][1]), said["lost"]
            counts = {
                "carried": sum(way.carried for way in ways.values()),
                "lost": sum(way.lost for way in ways.values()),
            }
            sys.stdout.write(json.dumps(counts) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
