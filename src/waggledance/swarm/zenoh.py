"""The swarm over Zenoh: the only file that knows it.

Peers link up directly, each with each; peers do not relay. Groups go out on
`waggle/1/<swarm>/groups/<author>`, presence is a liveliness token on
`waggle/1/<swarm>/here/<author>/<session>`. Zenoh's threads only append to a bounded mailbox, and a courier
thread does the sending: nothing here waits for the network but opening and closing.
"""

import atexit
import contextlib
import hashlib
import json
import re
import socket
import threading
from collections.abc import Callable, Sequence

import zenoh

from waggledance.errors import SwarmError, UsageError
from waggledance.rollout import Author, Group
from waggledance.seams import Swarm, Traffic
from waggledance.swarm.mailbox import Letter, Mailbox, Ring, Tally
from waggledance.swarm.wire import MESSAGE_LIMIT_BYTES, VERSION, Refusal, encode, is_name

LOOPBACK = "127.0.0.1"
ANY_LOOPBACK_PORT = f"tcp/{LOOPBACK}:0"
OPEN_TIMEOUT_MS = 5_000
FIRST_PEER_WAIT_MS = 500
"""Opening returns with the first peer, or alone after so long; looking for others goes on behind it."""
REDIAL_MS = (250, 4_000)
"""How soon an endpoint that does not answer is dialled again, first and at most."""
STUCK_PEER_WAIT_US = 100_000
"""How long the courier waits for a peer that stopped reading. Then that peer misses messages, at no further
cost to anyone, until it reads again."""
ZENOH_MESSAGE_LIMIT_BYTES = 4 * MESSAGE_LIMIT_BYTES
"""Zenoh drops larger ones before they are whole in memory. Above our own limit, so that ours is the one that
counts a refusal."""
FAREWELL_S = 1.0
"""How long closing waits for what is still to be sent, and again for the goodbye."""
PRESENT_LIMIT = 4096


def free_loopback_endpoint() -> str:
    """An endpoint to listen on that others can be told beforehand: Zenoh does not say which port 0 became.

    The port is free now and, as the system hands ports out in turn, most likely when it is used.
    """
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return f"tcp/{LOOPBACK}:{probe.getsockname()[1]}"


def open_zenoh_swarm(
    author: Author,
    swarm_name: str,
    connect: Sequence[str] = (),
    listen: Sequence[str] = (ANY_LOOPBACK_PORT,),
    *,
    interface: str = LOOPBACK,
    inbox: Ring | None = None,
    outbox: Ring | None = None,
) -> Swarm:
    """Joins a swarm, through `connect` where it is given and else by multicast on one interface.

    An endpoint in `connect` that does not answer is no error: the node goes on alone and dials it again.
    """
    for what, name in (("node", author), ("swarm", swarm_name)):
        if not is_name(name):
            raise UsageError(f"{name!r} cannot name a {what}: use letters, digits and ._- (64 at most)")
    try:
        session = zenoh.open(_config(swarm_name, connect, listen, interface))
    except zenoh.ZError as error:
        raise SwarmError(_why_not_opened(swarm_name, connect, listen, error)) from error
    return ZenohSwarm(session, author, swarm_name, inbox or Ring(), outbox or Ring())


class ZenohSwarm:
    """One node's end of a swarm; `open_zenoh_swarm` makes it."""

    def __init__(
        self, session: zenoh.Session, author: Author, swarm_name: str, inbox: Ring, outbox: Ring
    ) -> None:
        prefix = f"waggle/{VERSION}/{swarm_name}"
        self._author = author
        self._session = session
        self._tally = Tally()
        self._mailbox = Mailbox(author, inbox, self._tally)
        self._presence = _Presence(author)
        self._closing = threading.Lock()
        self._closed = False
        remote = zenoh.Locality.REMOTE
        liveliness = session.liveliness()
        # Kept, because Zenoh undeclares what is collected.
        self._declared = (
            session.declare_subscriber(f"{prefix}/groups/*", _direct(self._receive), allowed_origin=remote),
            liveliness.declare_subscriber(f"{prefix}/here/*/*", _direct(self._presence.note), history=True),
            liveliness.declare_token(f"{prefix}/here/{author}/{session.zid()}"),
        )
        self._courier = _Courier(
            session.declare_publisher(
                f"{prefix}/groups/{author}",
                congestion_control=zenoh.CongestionControl.DROP,
                allowed_destination=remote,
            ),
            outbox,
            self._tally,
        )
        # A process must end even if nobody closes: an open session can keep it for good.
        atexit.register(self.close)

    def _receive(self, sample: zenoh.Sample) -> None:
        author = Author(str(sample.key_expr).rpartition("/")[2])
        self._mailbox.put(Letter(author, sample.payload.to_bytes()))

    def publish(self, group: Group) -> None:
        assert group.author == self._author, "a node publishes its own groups only"
        if self._closed:
            return
        try:
            message = encode(group)
        except Refusal as refusal:
            self._tally.refused(refusal.reason)
            return
        self._courier.send(Letter(self._author, message))

    def drain(self) -> list[Group]:
        return self._mailbox.drain()

    def peers(self) -> frozenset[Author]:
        return frozenset() if self._closed else self._presence.peers()

    def traffic(self) -> Traffic:
        return self._tally.traffic()

    def close(self) -> None:
        # Taken once and kept: a signal that arrives during close() may call it again on the same thread.
        if not self._closing.acquire(blocking=False):
            return
        self._closed = True
        atexit.unregister(self.close)
        self._courier.close()
        # Beside a peer that does not read, Zenoh takes 12 s to give up on saying goodbye.
        goodbye = threading.Thread(target=self._say_goodbye, name="goodbye", daemon=True)
        goodbye.start()
        goodbye.join(FAREWELL_S)

    def _say_goodbye(self) -> None:
        with contextlib.suppress(zenoh.ZError):
            self._session.close()  # pyright: ignore[reportUnknownMemberType] - Zenoh's stubs leave it out


class _Presence:
    """Who is here, told by Zenoh's threads. A node that restarts is here twice until its old session ends."""

    def __init__(self, author: Author) -> None:
        self._author = author
        self._lock = threading.Lock()
        self._sessions: set[tuple[Author, str]] = set()

    def note(self, sample: zenoh.Sample) -> None:
        name, session = str(sample.key_expr).split("/")[-2:]
        with self._lock:
            if sample.kind == zenoh.SampleKind.DELETE:
                self._sessions.discard((Author(name), session))
            elif name != self._author and is_name(name) and len(self._sessions) < PRESENT_LIMIT:
                self._sessions.add((Author(name), session))

    def peers(self) -> frozenset[Author]:
        with self._lock:
            return frozenset(name for name, _ in self._sessions)


class _Courier:
    """The thread that sends. A put waits for peers that do not read; the node's round must not."""

    def __init__(self, publisher: zenoh.Publisher, outbox: Ring, tally: Tally) -> None:
        self._publisher = publisher
        self._outbox = outbox
        self._tally = tally
        self._ready = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="courier", daemon=True)
        self._thread.start()

    def send(self, letter: Letter) -> None:
        self._tally.dropped(self._outbox.put(letter))
        self._ready.set()

    def close(self) -> None:
        self._closed = True
        self._ready.set()
        self._thread.join(FAREWELL_S)

    def _run(self) -> None:
        while not self._closed:
            self._ready.wait()
            self._ready.clear()
            while (letter := self._outbox.take()) is not None:
                try:
                    self._publisher.put(letter.message)  # pyright: ignore[reportUnknownMemberType]
                except zenoh.ZError:  # the session was closed: closing did not wait any longer
                    self._tally.dropped(1 + len(self._outbox.take_all()))
                    return
                self._tally.sent(len(letter.message))


def _direct(note: Callable[[zenoh.Sample], None]) -> "zenoh.handlers.Callback[zenoh.Sample]":
    """Calls `note` on Zenoh's receiving thread, which is why it may only append and must not raise.

    The default is a Python thread behind a queue: the thread outlives the main one, so that the process never
    ends (zenoh-python issue 434), and the queue has no bound of ours. This way a late node slows its senders.
    """
    return zenoh.handlers.Callback(note, indirect=False)


def _config(swarm_name: str, connect: Sequence[str], listen: Sequence[str], interface: str) -> zenoh.Config:
    first_ms, most_ms = REDIAL_MS
    settings = {
        "mode": "peer",
        "connect": {
            "endpoints": list(connect),
            "timeout_ms": -1,
            "exit_on_failure": False,
            "retry": {"period_init_ms": first_ms, "period_max_ms": most_ms, "period_increase_factor": 2},
        },
        "listen": {"endpoints": list(listen), "timeout_ms": 0, "exit_on_failure": True},
        "scouting": {
            "delay": FIRST_PEER_WAIT_MS,
            "multicast": {
                "enabled": not connect,
                "address": _meeting_point(swarm_name),
                "interface": interface,
            },
            "gossip": {"enabled": True},
        },
        "adminspace": {"enabled": False},
        "transport": {
            "shared_memory": {"enabled": False},
            "unicast": {"open_timeout": OPEN_TIMEOUT_MS, "accept_timeout": OPEN_TIMEOUT_MS},
            "link": {
                "rx": {"max_message_size": ZENOH_MESSAGE_LIMIT_BYTES},
                "tx": {
                    "queue": {
                        "congestion_control": {
                            "drop": {
                                "wait_before_drop": STUCK_PEER_WAIT_US,
                                "max_wait_before_drop_fragments": STUCK_PEER_WAIT_US,
                            }
                        }
                    }
                },
            },
        },
    }
    return zenoh.Config.from_json5(json.dumps(settings))


def _meeting_point(swarm_name: str) -> str:
    """The multicast group where a swarm's nodes find each other; other swarms, and whatever else speaks Zenoh
    on this machine, meet elsewhere."""
    high, low = hashlib.blake2b(swarm_name.encode(), digest_size=2).digest()
    return f"239.255.{high}.{low}:7446"


def _why_not_opened(
    swarm_name: str, connect: Sequence[str], listen: Sequence[str], error: zenoh.ZError
) -> str:
    # Zenoh's messages end in places of its own source code.
    reason = re.sub(r"\s+at /\S+", "", str(error)).rstrip("].")
    return (
        f"cannot join the swarm {swarm_name} (listen: {', '.join(listen) or 'nothing'}; "
        f"connect: {', '.join(connect) or 'whom multicast finds'}): {reason}. "
        f"Endpoints look like tcp/192.0.2.7:7447; port 0 takes any free one"
    )
