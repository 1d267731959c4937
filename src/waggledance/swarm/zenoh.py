"""The swarm over Zenoh: the only file that knows it.

Zenoh's threads only append to bounded queues, and one thread of ours, the courier, does whatever may wait:
it opens the session where a router must be found first, sends, turns the ear, shows the node's card.
Nothing here waits for the network but the first moment of opening and the last of closing.
"""

import atexit
import contextlib
import json
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import zenoh

from waggledance.errors import SwarmError, UsageError
from waggledance.events import Met, Parted
from waggledance.rollout import Author, Group
from waggledance.seams import Card, Peer, Traffic
from waggledance.swarm.bucket import Buckets, Flows
from waggledance.swarm.ear import Ear, Tuner, address_of, ear_of, width_for
from waggledance.swarm.endpoint import check_endpoint
from waggledance.swarm.identity import Identity
from waggledance.swarm.key import (
    CARDS,
    EYES,
    GROUPS,
    HERE,
    key_of,
    kind_in,
    listening,
    session_in,
    token_of,
    tokens_of,
)
from waggledance.swarm.links import LEASE_MS, next_router_first, node_config
from waggledance.swarm.mailbox import Letter, Mailbox, Queue, Ring, Tally
from waggledance.swarm.presence import Presence, leaving
from waggledance.swarm.seal import SwarmSeal
from waggledance.swarm.silence import bound_silence
from waggledance.swarm.ticket import Role, Ticket
from waggledance.swarm.window import Windows
from waggledance.swarm.wire import Refusal, decode_card, encode, encode_card

WINDOWS = "heard"
"""The replay windows' file in a run's folder."""
FAREWELL_S = 1.0
"""How long closing waits for what is still to be sent, and again for the goodbye."""
REOPEN_S = 1.0
"""How soon a client that found no router tries again."""
CARD_EVERY_S = 30.0
CARD_PAUSE_S = 1.0
"""Newcomers are shown the card at once, but not each by itself."""
SMALL_SWARM = 64
"""In a larger one newcomers wait for the card that comes anyway: else each would make everyone speak."""
LIMIT_CARDS = 256
HEAR_TOKENS_S = 0.1
"""How long the tokens of those who are here may take, before the ear is opened as wide as their number
allows."""
FIRST_NEIGHBOURS = 32
"""In a larger swarm a newcomer begins with an ear that hears about so many, and tunes it from there."""


def open_zenoh_swarm(
    ticket: Ticket,
    identity: Identity,
    card: Card,
    *,
    connect: Sequence[str] = (),
    listen: Sequence[str] = (),
    interface: str | None = None,
    windows: Path | None = None,
    inbox: Queue | None = None,
    outbox: Queue | None = None,
    clock: Callable[[], float] = time.time,
) -> "ZenohSwarm":
    """Joins a swarm: through `connect` where it is given, else the ticket's routers, else by multicast on one
    interface (None: what the ticket says). An endpoint that does not answer is no error: the node goes on
    alone and dials it again."""
    if ticket.role is Role.ROUTER:
        raise UsageError("this is a router's ticket: it cannot read the swarm; use it with `waggle router`")
    if ticket.has_expired(clock()):
        raise UsageError("this ticket has expired; ask for a new one")
    for endpoint in (*connect, *listen):
        check_endpoint(endpoint)
    config = node_config(ticket, connect, listen, interface)
    # Peers need nobody to begin; a client needs a router, and whether one answers is not waited for.
    session = open_session(config) if config["mode"] == "peer" else None
    return ZenohSwarm(
        _Line(config, session, outbox or Ring()),
        ticket,
        identity,
        card,
        windows=Windows(windows),
        inbox=inbox or Ring(),
        clock=clock,
    )


def open_session(config: Mapping[str, Any]) -> zenoh.Session:
    try:
        return zenoh.open(zenoh.Config.from_json5(json.dumps(config)))
    except zenoh.ZError as error:
        raise SwarmError(_why_not_opened(config, error)) from error


class ZenohSwarm:
    """One node's end of a swarm; `open_zenoh_swarm` makes it."""

    def __init__(
        self,
        line: "_Line",
        ticket: Ticket,
        identity: Identity,
        card: Card,
        *,
        windows: Windows,
        inbox: Queue,
        clock: Callable[[], float],
    ) -> None:
        self._author = identity.author
        self._swarm = ticket.swarm
        self._can_speak = ticket.role is Role.MEMBER
        self._identity = identity
        self._card = card
        self._windows = windows
        self._seal = SwarmSeal(ticket, identity, windows, clock)
        self._tally = Tally()
        buckets = Buckets(Flows(), time.monotonic)
        self._mailbox = Mailbox(self._author, self._seal, inbox, self._tally, buckets)
        self._cards = Ring(LIMIT_CARDS)
        self._presence = Presence(self._author, clock, time.monotonic)
        self._tuner = Tuner(ear_of(self._author))
        self._pace = Pace(time.monotonic)
        self._closing = threading.Lock()
        self._closed = False
        self._line = line
        # A process must end even if nobody closes: an open session can keep it for good.
        atexit.register(self.close)
        line.start(self)

    def publish(self, group: Group) -> None:
        assert group.author == self._author, "a node publishes its own groups only"
        if self._closed or not self._can_speak:
            return
        self._pace.note(group.round)
        try:
            letter = self._letter(GROUPS, encode(group))
        except Refusal as refusal:
            self._tally.refused(refusal)
            return
        self._tally.dropped(self._line.send(letter))

    def drain(self, wanted: float) -> list[Group]:
        self._take_cards()
        self._line.listen_to(self._kept_keys(self._tuner.turn(self._mailbox.arrived, wanted)))
        groups = self._mailbox.drain()
        self._windows.save()
        return groups

    def peers(self) -> Mapping[Author, Peer]:
        self._take_cards()
        return {} if self._closed else self._presence.peers()

    def grants(self) -> Mapping[Author, str]:
        return self._seal.grants

    def news(self) -> list[Met | Parted]:
        self._take_cards()
        return self._presence.news()

    def traffic(self) -> Traffic:
        return self._tally.traffic(self._tuner.ear.share)

    @property
    def trouble(self) -> str | None:
        """Why there is no link at all, where a client finds no router."""
        return self._line.trouble

    @property
    def listens(self) -> bool:
        """Whether its ear is open: it opens a moment after the session does."""
        return self._line.listens

    def close(self) -> None:
        # Taken once and kept: a signal that arrives during close() may call it again on the same thread.
        if not self._closing.acquire(blocking=False):
            return
        self._closed = True
        atexit.unregister(self.close)
        left = self._line.close(self._card_letter(leaving(self._card)))
        self._tally.dropped(left)

    def _letter(self, kind: str, body: bytes) -> Letter:
        sequence = self._identity.next_sequence()
        key = key_of(self._swarm, kind, address_of(self._author, sequence), self._author)
        return Letter(key, self._seal.close(key, sequence, body))

    def _card_letter(self, card: Card) -> Letter | None:
        if not self._can_speak:
            return None
        pace = self._pace
        return self._letter(
            CARDS, encode_card(replace(card, round=pace.round, rounds_per_minute=pace.per_minute))
        )

    def _kept_keys(self, ear: Ear) -> tuple[str, ...]:
        """Groups and cards come by the same ear."""
        return tuple(key for kind in (GROUPS, CARDS) for key in listening(self._swarm, kind, ear.prefixes()))

    def _take_cards(self) -> None:
        for letter in self._cards.take_all():
            try:
                author, body = self._mailbox.opened(letter)
                self._presence.told(author, decode_card(body))
            except Refusal as refusal:
                self._tally.refused(refusal)

    # What the line calls: `take` and `see` on Zenoh's threads, the others on its own.

    def take(self, sample: zenoh.Sample) -> None:
        key = str(sample.key_expr)
        if self._mailbox.admits(key, len(sample.payload)):
            letter = Letter(key, sample.payload.to_bytes())
            if kind_in(key) == CARDS:
                self._cards.put(letter)
            else:
                self._mailbox.put(letter)

    def see(self, token: str, *, is_here: bool) -> None:
        named = session_in(token)
        if named is None:
            return
        if kind_in(token) == EYES:
            self._presence.asked()
        else:
            (self._presence.came if is_here else self._presence.went)(*named)

    def token(self, session: str) -> str:
        """What shows that this node is here, or that somebody looks."""
        return token_of(self._swarm, HERE if self._can_speak else EYES, self._author, session)

    def tokens(self) -> tuple[str, ...]:
        return tuple(tokens_of(self._swarm, kind) for kind in (HERE, EYES))

    def first_keys(self) -> tuple[str, ...]:
        crowd = max(FIRST_NEIGHBOURS, len(self._presence.peers()))
        self._tuner.ear = ear_of(self._author, width_for(FIRST_NEIGHBOURS / crowd))
        return self._kept_keys(self._tuner.ear)

    def card_for(self, newcomers_shown: int) -> tuple[Letter | None, int]:
        """The card as a letter where somebody waits for it, and how many newcomers have been shown it
        then."""
        newcomers = self._presence.newcomers
        waits = newcomers > newcomers_shown and len(self._presence.peers()) <= SMALL_SWARM
        return (self._card_letter(self._card) if waits else None), newcomers

    def card_again(self) -> Letter | None:
        return self._card_letter(self._card)

    def sent(self, letter: Letter) -> None:
        if kind_in(letter.key) == GROUPS:
            self._tally.sent(len(letter.message))


class _Line:
    """The link to the others, and the courier: the thread that does what the node's round must not wait for.

    It opens the session where it has none yet, declares, sends, and shows the card.
    """

    def __init__(self, config: Mapping[str, Any], session: zenoh.Session | None, outbox: Queue) -> None:
        self._config = config
        self._session = session
        self._outbox = outbox
        self._subscribers: dict[str, zenoh.Subscriber[None]] = {}
        self._wanted: tuple[str, ...] | None = None
        self._ready = threading.Event()
        self._ending = threading.Event()
        self._goodbye: Letter | None = None
        self._thread: threading.Thread | None = None
        self.trouble: str | None = None

    def start(self, node: ZenohSwarm) -> None:
        self._thread = threading.Thread(target=self._run, args=(node,), name="courier", daemon=True)
        self._thread.start()

    def send(self, letter: Letter) -> int:
        """Never waits; says how many older letters had to go for it."""
        gone = self._outbox.put(letter)
        self._ready.set()
        return gone

    @property
    def listens(self) -> bool:
        return bool(self._subscribers)

    def listen_to(self, keys: tuple[str, ...]) -> None:
        if keys != self._wanted and self._wanted is not None:
            self._wanted = keys
            self._ready.set()

    def close(self, goodbye: Letter | None) -> int:
        """Waits a little for what is still to be sent; says how many letters were not."""
        self._goodbye = goodbye
        self._ending.set()
        self._ready.set()
        if self._thread is not None:
            self._thread.join(FAREWELL_S)
        left = len(self._outbox.take_all())
        # Beside a peer that does not read, Zenoh takes 12 s to give up on saying goodbye.
        closing = threading.Thread(target=self._close_session, name="goodbye", daemon=True)
        closing.start()
        closing.join(FAREWELL_S)
        return left

    def _run(self, node: ZenohSwarm) -> None:
        session = self._opened()
        if session is None:
            return
        # Kept, because Zenoh undeclares what is collected.
        kept = (_bound_silence(session), *_see_others(session, node))
        self._ending.wait(HEAR_TOKENS_S)
        self._wanted = node.first_keys()
        self._subscribe(session, node)
        # Only now: whoever sees the token shows its card, and that must find open ears.
        token = _show_token(session, node)
        shown = -1
        card_due = 0.0
        while True:
            self._subscribe(session, node)
            card, shown = node.card_for(shown)
            if time.monotonic() >= card_due:
                card = node.card_again()
            if card is not None:
                card_due = time.monotonic() + CARD_EVERY_S
                self._put(session, node, card)
            while (letter := self._outbox.take()) is not None:
                if not self._put(session, node, letter):
                    return
            if self._ending.is_set():
                if self._goodbye is not None:
                    self._put(session, node, self._goodbye)
                break
            self._ready.wait(CARD_PAUSE_S)
            self._ready.clear()
        del kept, token

    def _opened(self) -> zenoh.Session | None:
        while self._session is None and not self._ending.is_set():
            try:
                self._session = open_session(self._config)
                self.trouble = None
            except SwarmError as error:
                self.trouble = str(error)
                self._config = next_router_first(self._config)
                self._ending.wait(REOPEN_S)
        return self._session

    def _subscribe(self, session: zenoh.Session, node: ZenohSwarm) -> None:
        wanted = self._wanted or ()
        if wanted == tuple(self._subscribers):
            return
        # Away first: what two subscriptions match would come twice.
        for key in self._subscribers.keys() - set(wanted):
            self._subscribers.pop(key).undeclare()  # pyright: ignore[reportUnknownMemberType]
        for key in wanted:
            if key not in self._subscribers:
                self._subscribers[key] = session.declare_subscriber(
                    key,
                    _direct(node.take),
                    allowed_origin=zenoh.Locality.REMOTE,
                )
        self._subscribers = {key: self._subscribers[key] for key in wanted}

    def _put(self, session: zenoh.Session, node: ZenohSwarm, letter: Letter) -> bool:
        try:
            session.put(  # pyright: ignore[reportUnknownMemberType]
                letter.key,
                letter.message,
                congestion_control=zenoh.CongestionControl.DROP,
                allowed_destination=zenoh.Locality.REMOTE,
            )
        except zenoh.ZError:  # the session was closed: closing did not wait any longer
            return False
        node.sent(letter)
        return True

    def _close_session(self) -> None:
        if self._session is not None:
            with contextlib.suppress(zenoh.ZError):
                self._session.close()  # pyright: ignore[reportUnknownMemberType] - Zenoh's stubs leave it out


class Pace:
    """How fast a node goes, by what it publishes."""

    def __init__(self, stopwatch: Callable[[], float]) -> None:
        self._stopwatch = stopwatch
        self._first: tuple[int, float] | None = None
        self.round = 0
        self.per_minute = 0.0

    def note(self, round_number: int) -> None:
        if self._first is None:
            self._first = (round_number, self._stopwatch())
        if round_number > self.round:
            self.round = round_number
            rounds, seconds = round_number - self._first[0], self._stopwatch() - self._first[1]
            self.per_minute = min(1e6, 60 * rounds / seconds) if seconds > 0 else 0.0


def _see_others(session: zenoh.Session, node: ZenohSwarm) -> list[object]:
    def note(sample: zenoh.Sample) -> None:
        node.see(str(sample.key_expr), is_here=sample.kind != zenoh.SampleKind.DELETE)

    watch = session.liveliness().declare_subscriber
    return [watch(key, _direct(note), history=True) for key in node.tokens()]


def _show_token(session: zenoh.Session, node: ZenohSwarm) -> object:
    return session.liveliness().declare_token(node.token(str(session.zid())))


def _bound_silence(session: zenoh.Session) -> object:
    def note(event: zenoh.LinkEvent) -> None:
        link = event.link
        if event.kind != zenoh.SampleKind.DELETE and link.is_streamed:
            bound_silence(link.src, link.dst, LEASE_MS)

    return session.info.declare_link_events_listener(
        zenoh.handlers.Callback(note, indirect=False), history=True
    )


def _direct(note: Callable[[zenoh.Sample], None]) -> "zenoh.handlers.Callback[zenoh.Sample]":
    """Calls `note` on Zenoh's receiving thread, which is why it may only append and must not raise.

    The default is a Python thread behind a queue: the thread outlives the main one, so that the process never
    ends (zenoh-python issue 434), and the queue has no bound of ours. This way a late node slows its senders.
    """
    return zenoh.handlers.Callback(note, indirect=False)


def _why_not_opened(config: Mapping[str, Any], error: zenoh.ZError) -> str:
    # Zenoh's messages end in places of its own source code.
    reason = re.sub(r"\s+at /\S+", "", str(error)).rstrip("].")
    listen, connect = config["listen"]["endpoints"], config["connect"]["endpoints"]
    return (
        f"cannot join the swarm (listen: {', '.join(listen) or 'nothing'}; "
        f"connect: {', '.join(connect) or 'whom multicast finds'}): {reason}. "
        f"Endpoints look like tls/192.0.2.7:7447; port 0 takes any free one"
    )


class Relay:
    """A session that only relays."""

    def __init__(self, session: zenoh.Session) -> None:
        self._session = session
        self._kept = _bound_silence(session)
        atexit.register(self.close)

    def linked(self) -> int:
        """How many sessions are linked up with this one, nodes and routers."""
        info = self._session.info
        return len(info.routers_zid()) + len(info.peers_zid())

    def close(self) -> None:
        atexit.unregister(self.close)
        closing = threading.Thread(target=self._close, name="goodbye", daemon=True)
        closing.start()
        closing.join(FAREWELL_S)

    def _close(self) -> None:
        with contextlib.suppress(zenoh.ZError):
            self._session.close()  # pyright: ignore[reportUnknownMemberType] - Zenoh's stubs leave it out


def open_relay(config: Mapping[str, Any]) -> Relay:
    return Relay(open_session(config))
