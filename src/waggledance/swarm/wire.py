"""The wire: groups and cards as bytes and back, and every limit they must keep.

A body is one msgpack array that begins with the version, major and minor. A group carries what an author
tried and nothing that a receiver must find out by itself: no reward, no code, no token ids; question and
truth only of tasks that others do not have, and only if their owner wants it. Who wrote it stands in the
envelope (`seal`). Equal groups make equal bytes; encoding and decoding hold them to the same limits.

A new minor version adds fields at the end: older nodes pass over them. Another major version is refused.
"""

import re
from enum import StrEnum
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from waggledance.draw import PLACES_LIMIT
from waggledance.rollout import CARRIED_LIMIT_CHARACTERS, Author, Carried, Group, Rollout
from waggledance.seams import Card
from waggledance.task import Digest, SourceName

MAJOR, MINOR = 1, 1
MESSAGE_LIMIT_BYTES = 256 * 1024
BODY_LIMIT_BYTES = MESSAGE_LIMIT_BYTES - 512
"""What is left when it is signed and sealed."""
ROLLOUTS_LIMIT = 64
TEXT_LIMIT_CHARACTERS = 64 * 1024
SOURCES_LIMIT = 256
COUNT_LIMIT = 2**63
"""Indices, rounds and token counts lie below it: a signed 64-bit integer holds them."""
LOGPROB_FLOOR = -1e4
LOGPROB_TOLERANCE = 1e-3
"""A mean log-probability is never above zero but by rounding in the author's arithmetic."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_AUTHOR = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
_SOURCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}")
_RULE = re.compile(r"[a-z][a-z_]{0,31}")
_MODEL_LIMIT_CHARACTERS = 200
_EMPTY_ARRAY = 0x90
"""How msgpack begins an array without fields; up to fifteen are added to it."""


class Reason(StrEnum):
    """Why a message was not let in, or a group not let out."""

    FLOOD = "flood"
    """More than is worth opening, of those who claim to be its author or of all: not looked at."""
    OVERSIZE = "oversize"
    MALFORMED = "malformed"
    VERSION = "version"
    BOUNDS = "bounds"
    SEAL = "seal"
    """Not sealed with this swarm's key: an outsider's, or a message moved or changed on its way."""
    FORGED = "forged"
    """Not signed by the one whose key it was put on."""
    GRANT = "grant"
    """Its author holds no grant of this swarm's founder to speak."""
    EXPIRED = "expired"
    REPLAY = "replay"
    OWN = "own"
    """Somebody else speaks in this node's name, or a second node carries it."""


class Refusal(Exception):  # noqa: N818 - an everyday answer to a hostile message, not an error
    def __init__(self, reason: Reason, author: Author | None = None, detail: str = "") -> None:
        super().__init__(f"{reason.value} {detail}".rstrip())
        self.reason = reason
        self.detail = detail
        self.author = author
        """Who is to blame: None unless the message's signature says so."""


class _Rollout(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    text: str
    finished: bool
    tokens: int
    mean_logprob: float


class _Carried(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    question: str
    rule: str
    truth: str


class _Group(msgspec.Struct, frozen=True, array_like=True):
    major: int
    minor: int
    round: int
    source: SourceName
    digest: Digest
    index: int
    rollouts: tuple[_Rollout, ...]
    place: int = 0
    carried: _Carried | None = None


class _Card(msgspec.Struct, frozen=True, array_like=True):
    major: int
    minor: int
    model: Annotated[str, Meta(max_length=_MODEL_LIMIT_CHARACTERS)]
    weights: Annotated[int, Meta(ge=0)]
    version: Annotated[str, Meta(max_length=32)]
    sources: Annotated[tuple[tuple[SourceName, Digest], ...], Meta(max_length=SOURCES_LIMIT)]
    round: Annotated[int, Meta(ge=0)]
    rounds_per_minute: Annotated[float, Meta(ge=0, le=1e6)]
    leaving: bool


class _Opening(msgspec.Struct, frozen=True, array_like=True):
    """What every version begins with."""

    major: int


Body = TypeVar("Body", _Group, _Card)

_encoder = msgspec.msgpack.Encoder()
_openings = msgspec.msgpack.Decoder(_Opening)
_groups = msgspec.msgpack.Decoder(_Group)
_cards = msgspec.msgpack.Decoder(_Card)


def is_name(text: str) -> bool:
    """Whether a node or a swarm may be called so: it becomes a chunk of a key and is shown on screens."""
    return _NAME.fullmatch(text) is not None


def is_author(text: str) -> bool:
    return _AUTHOR.fullmatch(text) is not None


def encode(group: Group) -> bytes:
    if not _in_bounds(group):
        raise Refusal(Reason.BOUNDS)
    rollouts = tuple(_Rollout(r.text, r.finished, r.tokens, r.mean_logprob) for r in group.rollouts)
    said = group.carried
    carried = _Carried(said.question, said.rule, said.truth) if said else None
    return _encoded(
        _Group(
            MAJOR,
            MINOR,
            group.round,
            group.source,
            group.digest,
            group.index,
            rollouts,
            group.place,
            carried,
        )
    )


def decode(body: bytes, author: Author) -> Group:
    """The group in a body that `author` wrote."""
    said = _decoded(body, _groups)
    rollouts = tuple(Rollout(r.text, r.finished, r.tokens, r.mean_logprob) for r in said.rollouts)
    carried = said.carried and Carried(said.carried.question, said.carried.rule, said.carried.truth)
    group = Group(author, said.round, said.source, said.digest, said.index, rollouts, said.place, carried)
    if not _in_bounds(group):
        raise Refusal(Reason.BOUNDS)
    return group


def encode_card(card: Card) -> bytes:
    sources = tuple(sorted(card.sources.items())[:SOURCES_LIMIT])
    return _encoded(
        _Card(
            MAJOR,
            MINOR,
            card.model[:_MODEL_LIMIT_CHARACTERS],
            card.weights,
            card.version,
            sources,
            card.round,
            card.rounds_per_minute,
            card.leaving,
        )
    )


def decode_card(body: bytes) -> Card:
    said = _decoded(body, _cards)
    if not all(_SOURCE.fullmatch(word) for pair in said.sources for word in pair):
        raise Refusal(Reason.BOUNDS)
    return Card(
        model=said.model,
        weights=said.weights,
        version=said.version,
        sources=dict(said.sources),
        round=said.round,
        rounds_per_minute=said.rounds_per_minute,
        leaving=said.leaving,
    )


def _encoded(body: _Group | _Card) -> bytes:
    try:
        message = _encoder.encode(body)
    except (UnicodeEncodeError, OverflowError):  # half a surrogate pair is a str, but no text
        raise Refusal(Reason.MALFORMED) from None
    if len(message) > BODY_LIMIT_BYTES:
        raise Refusal(Reason.OVERSIZE)
    return message


def _decoded(body: bytes, decoder: "msgspec.msgpack.Decoder[Body]") -> Body:
    if len(body) > BODY_LIMIT_BYTES:
        raise Refusal(Reason.OVERSIZE)
    try:
        major = _openings.decode(body).major
        said = decoder.decode(body) if major == MAJOR else None
    except Exception:  # noqa: BLE001 - hostile bytes end here, whatever they do to the decoder
        raise Refusal(Reason.MALFORMED) from None
    if said is None:
        raise Refusal(Reason.VERSION, detail=str(major))
    # Fields that this version does not know are for newer ones to add.
    if said.minor <= MINOR and body[0] - _EMPTY_ARRAY > len(said.__struct_fields__):
        raise Refusal(Reason.MALFORMED)
    return said


def _in_bounds(group: Group) -> bool:
    return (
        is_author(group.author)
        and 0 <= group.round < COUNT_LIMIT
        and _SOURCE.fullmatch(group.source) is not None
        and _SOURCE.fullmatch(group.digest) is not None
        and 0 <= group.index < COUNT_LIMIT
        and 0 <= group.place < PLACES_LIMIT
        and (group.carried is None or _carried_in_bounds(group.carried))
        and 1 <= len(group.rollouts) <= ROLLOUTS_LIMIT
        and all(map(_rollout_in_bounds, group.rollouts))
    )


def _carried_in_bounds(carried: Carried) -> bool:
    return (
        max(len(carried.question), len(carried.truth)) <= CARRIED_LIMIT_CHARACTERS
        and _RULE.fullmatch(carried.rule) is not None
    )


def _rollout_in_bounds(rollout: Rollout) -> bool:
    return (
        len(rollout.text) <= TEXT_LIMIT_CHARACTERS
        and 0 <= rollout.tokens < COUNT_LIMIT
        # Written so that NaN, which compares false with everything, is out of bounds.
        and LOGPROB_FLOOR <= rollout.mean_logprob <= LOGPROB_TOLERANCE
    )
