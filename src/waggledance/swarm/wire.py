"""The wire: a group as bytes and back, and every limit it must keep.

A message is one msgpack array, the version first. It carries what an author tried and nothing that a receiver
must find out by itself: no question, no truth, no reward, no code, no token ids. Equal groups make equal
bytes. Encoding and decoding hold a group to the same limits; what breaks one is a `Refusal` with its reason.
"""

import re
from enum import StrEnum

import msgspec

from waggledance.rollout import Author, Group, Rollout
from waggledance.task import Digest, SourceName

VERSION = 1
MESSAGE_LIMIT_BYTES = 256 * 1024
ROLLOUTS_LIMIT = 64
TEXT_LIMIT_CHARACTERS = 64 * 1024
COUNT_LIMIT = 2**63
"""Indices, rounds and token counts lie below it: a signed 64-bit integer holds them."""
LOGPROB_FLOOR = -1e4
LOGPROB_TOLERANCE = 1e-3
"""A mean log-probability is never above zero but by rounding in the author's arithmetic."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SOURCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}")


class Reason(StrEnum):
    """Why a message was not let in, or a group not let out."""

    OVERSIZE = "oversize"
    MALFORMED = "malformed"
    VERSION = "version"
    BOUNDS = "bounds"
    FORGED = "forged"
    """Its author is not the one whose key it was put on."""
    OWN = "own"
    """Somebody else speaks in this node's name, or a second node carries it."""


class Refusal(Exception):  # noqa: N818 - an everyday answer to a hostile message, not an error
    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.value)
        self.reason = reason


class _Rollout(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    text: str
    finished: bool
    tokens: int
    mean_logprob: float


class _Message(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    version: int
    author: Author
    round: int
    source: SourceName
    digest: Digest
    index: int
    rollouts: tuple[_Rollout, ...]


class _Opening(msgspec.Struct, frozen=True, array_like=True):
    """What every version begins with."""

    version: int


_encoder = msgspec.msgpack.Encoder()
_openings = msgspec.msgpack.Decoder(_Opening)
_messages = msgspec.msgpack.Decoder(_Message)


def is_name(text: str) -> bool:
    """Whether an author or a swarm may be called so: it becomes a chunk of a key and is shown on screens."""
    return _NAME.fullmatch(text) is not None


def encode(group: Group) -> bytes:
    if not _in_bounds(group):
        raise Refusal(Reason.BOUNDS)
    rollouts = tuple(_Rollout(r.text, r.finished, r.tokens, r.mean_logprob) for r in group.rollouts)
    try:
        message = _encoder.encode(
            _Message(VERSION, group.author, group.round, group.source, group.digest, group.index, rollouts)
        )
    except UnicodeEncodeError:  # half a surrogate pair: a str, but no text
        raise Refusal(Reason.MALFORMED) from None
    if len(message) > MESSAGE_LIMIT_BYTES:
        raise Refusal(Reason.OVERSIZE)
    return message


def decode(message: bytes, author: Author) -> Group:
    """The group in a message that was put on `author`'s key."""
    if len(message) > MESSAGE_LIMIT_BYTES:
        raise Refusal(Reason.OVERSIZE)
    try:
        version = _openings.decode(message).version
        body = _messages.decode(message) if version == VERSION else None
    except Exception:  # noqa: BLE001 - hostile bytes end here, whatever they do to the decoder
        raise Refusal(Reason.MALFORMED) from None
    if body is None:
        raise Refusal(Reason.VERSION)
    rollouts = tuple(Rollout(r.text, r.finished, r.tokens, r.mean_logprob) for r in body.rollouts)
    group = Group(body.author, body.round, body.source, body.digest, body.index, rollouts)
    if not _in_bounds(group):
        raise Refusal(Reason.BOUNDS)
    if group.author != author:
        raise Refusal(Reason.FORGED)
    return group


def _in_bounds(group: Group) -> bool:
    return (
        is_name(group.author)
        and 0 <= group.round < COUNT_LIMIT
        and _SOURCE.fullmatch(group.source) is not None
        and _SOURCE.fullmatch(group.digest) is not None
        and 0 <= group.index < COUNT_LIMIT
        and 1 <= len(group.rollouts) <= ROLLOUTS_LIMIT
        and all(map(_rollout_in_bounds, group.rollouts))
    )


def _rollout_in_bounds(rollout: Rollout) -> bool:
    return (
        len(rollout.text) <= TEXT_LIMIT_CHARACTERS
        and 0 <= rollout.tokens < COUNT_LIMIT
        # Written so that NaN, which compares false with everything, is out of bounds.
        and LOGPROB_FLOOR <= rollout.mean_logprob <= LOGPROB_TOLERANCE
    )
