"""Grants: who may speak in a private swarm, shown without asking anyone.

The founder's key grants a seat (a key of its own) until a date; the seat's key vouches for a node's. Both
signatures travel with every message as its passport, and any member can check them.
"""

from dataclasses import dataclass
from typing import Annotated

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from msgspec import Meta

KEY_BYTES, SIGNATURE_BYTES = 32, 64
Key = Annotated[bytes, Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]
Signature = Annotated[bytes, Meta(min_length=SIGNATURE_BYTES, max_length=SIGNATURE_BYTES)]
Seconds = Annotated[int, Meta(ge=0, le=2**63 - 1)]
"""Since 1970; 0 is never."""


class Grant(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The founder's word that a seat may speak."""

    seat: Key
    expires: Seconds
    signature: Signature


@dataclass(frozen=True, slots=True)
class Passport:
    grant: Grant
    vouched: bytes
    """The seat's signature for the node."""


def grant(founder: bytes, swarm: str, seat: bytes, expires: int) -> Grant:
    """By the founder's private key, to the seat's public one."""
    return Grant(seat, expires, private_key(founder).sign(_grant_words(swarm, seat, expires)))


def passport(granted: Grant, seat: bytes, swarm: str, node: bytes) -> Passport:
    """By the seat's private key, for the node's public one."""
    return Passport(granted, private_key(seat).sign(_node_words(swarm, node)))


def is_sound(shown: Passport, founder: bytes, swarm: str, node: bytes) -> bool:
    """Whether founder, seat and node hang together; the date is another question."""
    granted = shown.grant
    try:
        Ed25519PublicKey.from_public_bytes(founder).verify(
            granted.signature, _grant_words(swarm, granted.seat, granted.expires)
        )
        Ed25519PublicKey.from_public_bytes(granted.seat).verify(shown.vouched, _node_words(swarm, node))
    except InvalidSignature:
        return False
    return True


def private_key(seed: bytes) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(seed)


def public_of(seed: bytes) -> bytes:
    return private_key(seed).public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def _grant_words(swarm: str, seat: bytes, expires: int) -> bytes:
    return b"waggle grant 1\0" + swarm.encode() + seat + expires.to_bytes(8, "big")


def _node_words(swarm: str, node: bytes) -> bytes:
    return b"waggle node 1\0" + swarm.encode() + node
