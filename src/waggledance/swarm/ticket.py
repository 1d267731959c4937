"""Tickets: one string that holds all a newcomer needs.

In a private swarm a member's ticket carries the seal, which makes messages readable and from which the key of
the encrypted links follows, and a seat with its grant, without which nobody is listened to. A watcher has no
seat; a router has the links' key alone. An open swarm's has the links' key, which is no secret.
"""

import base64
import hashlib
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from waggledance.errors import UsageError
from waggledance.swarm.endpoint import check_endpoint
from waggledance.swarm.grant import KEY_BYTES, Grant, Key, Passport, Seconds, Signature, passport, public_of
from waggledance.swarm.wire import is_name

VERSION = 1
PREFIX = "waggle"
CHECK_BYTES = 4
ROUTERS_LIMIT = 16
LETTERS_LIMIT = 16_384
WEB = "web"

SwarmId = Annotated[str, Meta(pattern=r"^[0-9a-f]{16}\Z")]
"""Drawn at random: two swarms of one name are two swarms."""


class Role(StrEnum):
    MEMBER = "member"
    WATCHER = "watcher"
    ROUTER = "router"


class Ticket(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    version: int
    name: str
    swarm: SwarmId
    role: Role
    expires: Seconds
    lan: bool
    """Whether the others may be on other machines of this network."""
    routers: Annotated[tuple[str, ...], Meta(max_length=ROUTERS_LIMIT)]
    """Where to dial. None: nodes find each other."""
    authority: str
    """Whose certificates routers show: "" the swarm's own, "web" public ones, else a PEM of the user's
    own."""
    founder: Key | None
    """The founder's public key; None in an open swarm."""
    seal: Key | None
    links: Key | None
    """Where there is no seal for it to follow from."""
    seat: Key | None
    """The seat's private key."""
    granted: Signature | None
    """The founder's signature for the seat."""

    @property
    def is_open(self) -> bool:
        return self.founder is None

    def has_expired(self, now: float) -> bool:
        return 0 < self.expires < now

    @property
    def links_key(self) -> bytes:
        """The key from which every holder makes the swarm's certificates."""
        if self.links is not None:
            return self.links
        assert self.seal is not None, "checked when it was read"
        return links_of(self.seal)

    def passport(self, node: bytes) -> Passport | None:
        """For a node's public key; None where nobody needs one, or may have one."""
        if self.seat is None or self.granted is None:
            return None
        granted = Grant(public_of(self.seat), self.expires, self.granted)
        return passport(granted, self.seat, self.swarm, node)


def watching(ticket: Ticket) -> Ticket:
    """What is left of a ticket for somebody who only looks."""
    return msgspec.structs.replace(ticket, role=Role.WATCHER, seat=None, granted=None)


class _Opening(msgspec.Struct, frozen=True, array_like=True):
    """What every version begins with."""

    version: int


def links_of(seal: bytes) -> bytes:
    """One way only: a router that has these cannot read what it carries."""
    return hashlib.blake2b(digest_size=KEY_BYTES, key=seal, person=b"waggle links").digest()


def write_ticket(ticket: Ticket) -> str:
    packed = msgspec.msgpack.encode(ticket)
    written = PREFIX + base64.urlsafe_b64encode(packed + _check(packed)).decode().rstrip("=")
    if len(written) > LETTERS_LIMIT:
        raise UsageError(
            f"this ticket would have {len(written):,} letters, {LETTERS_LIMIT:,} are the limit: "
            "take fewer routers, or an authority's certificate without the others of its chain"
        )
    return written


def read_ticket(text: str) -> Ticket:
    """Refuses one that was cut short or mistyped before anything is done with it."""
    letters = "".join(text.split())
    if not letters.startswith(PREFIX) or len(letters) > LETTERS_LIMIT:
        raise UsageError(
            f"this is no ticket: one begins with {PREFIX!r}; copy the whole line of `waggle invite`"
        )
    packed = _unpacked(letters.removeprefix(PREFIX))
    try:
        version = msgspec.msgpack.decode(packed, type=_Opening).version
        ticket = msgspec.msgpack.decode(packed, type=Ticket) if version == VERSION else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError("this ticket cannot be read; ask for a new one") from error
    if ticket is None:
        raise UsageError(
            f"this ticket is of version {version}, not {VERSION}; use the release of whoever invited"
        )
    _check_whole(ticket)
    return ticket


def _unpacked(letters: str) -> bytes:
    try:
        content = base64.b64decode(letters + "=" * (-len(letters) % 4), altchars=b"-_", validate=True)
    except ValueError:
        content = b""
    packed, check = content[:-CHECK_BYTES], content[-CHECK_BYTES:]
    if not packed or check != _check(packed):
        raise UsageError("this ticket was cut short or mistyped; copy the whole line of `waggle invite`")
    return packed


def _check_whole(ticket: Ticket) -> None:
    """A sound checksum proves nothing about who wrote it."""
    sealed = not ticket.is_open and ticket.role is not Role.ROUTER
    seated = not ticket.is_open and ticket.role is Role.MEMBER
    whole = (
        is_name(ticket.name)
        and (ticket.seal is not None) == sealed
        and (ticket.links is not None) == (not sealed)
        and (ticket.seat is not None) == (ticket.granted is not None) == seated
    )
    if not whole:
        raise UsageError("this ticket is not whole; ask for a new one")
    for endpoint in ticket.routers:
        check_endpoint(endpoint)


def _check(packed: bytes) -> bytes:
    return hashlib.blake2b(packed, digest_size=CHECK_BYTES, person=b"waggle ticket").digest()
