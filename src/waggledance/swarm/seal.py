"""The seal: from a body to a message that proves who wrote it and, in a private swarm, hides what it says.

A message is the major version, then an envelope: the author's public key, the sequence, the passport (in a
private swarm), the signature, the body. The signature covers the domain, the swarm, the key that the
message is put on, the sequence and the body. In a private swarm the envelope is encrypted under a key drawn
from the swarm's and a nonce of 24 random bytes, so nobody has to remember which nonces were used. `open`
checks from the cheapest to the dearest and refuses with a reason; it is the only way in.
"""

import hashlib
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Annotated, Protocol

import msgspec
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from msgspec import Meta

from waggledance.rollout import Author
from waggledance.swarm.grant import Grant, Key, Passport, Signature, is_sound
from waggledance.swarm.identity import Identity, fingerprint, fingerprint_in
from waggledance.swarm.key import author_in
from waggledance.swarm.ticket import Ticket
from waggledance.swarm.window import Windows
from waggledance.swarm.wire import MAJOR, MESSAGE_LIMIT_BYTES, Reason, Refusal

Clock = Callable[[], float]

NONCE_BYTES = 24
LIMIT_KNOWN = 4096
"""Passports that were found sound and need no second look."""
_ONE_MESSAGE = bytes(12)
"""The nonce proper: every message has a key of its own, so it may always be the same."""
_DOMAIN = b"waggle message 1\0"


class _Envelope(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    public: Key
    sequence: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    grant: Grant | None
    vouched: Signature | None
    """The seat's signature over the public key."""
    signature: Signature
    body: bytes


class Seal(Protocol):
    @property
    def grants(self) -> Mapping[Author, str]:
        """By which grant each author spoke whose messages were opened; empty where nobody grants."""
        ...

    def close(self, key: str, sequence: int, body: bytes) -> bytes: ...
    def open(self, key: str, message: bytes) -> tuple[Author, bytes]:
        """Who wrote it and what; raises Refusal."""
        ...


class Unsealed:
    """No seal at all: for nodes of one process, who have nothing to hide from each other."""

    @property
    def grants(self) -> Mapping[Author, str]:
        return {}

    def close(self, key: str, sequence: int, body: bytes) -> bytes:
        del key, sequence
        return body

    def open(self, key: str, message: bytes) -> tuple[Author, bytes]:
        author = author_in(key)
        if author is None:
            raise Refusal(Reason.MALFORMED)
        return author, message


class SwarmSeal:
    def __init__(self, ticket: Ticket, identity: Identity, windows: Windows, clock: Clock) -> None:
        self._ticket = ticket
        self._identity = identity
        self._passport = ticket.passport(identity.public)
        self._windows = windows
        self._clock = clock
        self._known: OrderedDict[tuple[bytes, Passport], None] = OrderedDict()
        self.grants: dict[Author, str] = {}
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(_Envelope)

    def close(self, key: str, sequence: int, body: bytes) -> bytes:
        passport = self._passport
        envelope = self._encoder.encode(
            _Envelope(
                public=self._identity.public,
                sequence=sequence,
                grant=passport.grant if passport else None,
                vouched=passport.vouched if passport else None,
                signature=self._identity.sign(self._signed(key, sequence, body)),
                body=body,
            )
        )
        if self._ticket.seal is not None:
            nonce = os.urandom(NONCE_BYTES)
            envelope = nonce + self._cipher(nonce).encrypt(_ONE_MESSAGE, envelope, key.encode())
        return bytes((MAJOR,)) + envelope

    def open(self, key: str, message: bytes) -> tuple[Author, bytes]:
        if not 0 < len(message) <= MESSAGE_LIMIT_BYTES:
            raise Refusal(Reason.OVERSIZE if message else Reason.MALFORMED)
        if message[0] != MAJOR:
            raise Refusal(Reason.VERSION, detail=str(message[0]))
        author = author_in(key)
        envelope = self._envelope(self._unsealed(key, message[1:]))
        if author is None or fingerprint_in(author) != fingerprint(envelope.public):
            raise Refusal(Reason.FORGED)
        self._check_signature(key, envelope)
        self._check_passport(author, envelope)
        if not self._windows.admit(fingerprint_in(author), envelope.sequence):
            raise Refusal(Reason.REPLAY, author)
        return author, envelope.body

    def _unsealed(self, key: str, content: bytes) -> bytes:
        if self._ticket.seal is None:
            return content
        nonce = content[:NONCE_BYTES]
        try:
            return self._cipher(nonce).decrypt(_ONE_MESSAGE, content[NONCE_BYTES:], key.encode())
        except InvalidTag:
            raise Refusal(Reason.SEAL) from None

    def _envelope(self, content: bytes) -> _Envelope:
        try:
            return self._decoder.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise Refusal(Reason.MALFORMED) from None

    def _check_signature(self, key: str, envelope: _Envelope) -> None:
        signed = self._signed(key, envelope.sequence, envelope.body)
        try:
            Ed25519PublicKey.from_public_bytes(envelope.public).verify(envelope.signature, signed)
        except (InvalidSignature, ValueError):
            raise Refusal(Reason.FORGED) from None

    def _check_passport(self, author: Author, envelope: _Envelope) -> None:
        founder, grant = self._ticket.founder, envelope.grant
        if founder is None:
            return
        if grant is None or envelope.vouched is None:
            raise Refusal(Reason.GRANT, author)
        passport = Passport(grant, envelope.vouched)
        known = (envelope.public, passport)
        if known not in self._known:
            if not is_sound(passport, founder, self._ticket.swarm, envelope.public):
                raise Refusal(Reason.GRANT, author)
            self._known[known] = None
            self.grants[author] = grant.seat.hex()
            if len(self._known) > LIMIT_KNOWN:
                self._known.popitem(last=False)
            if len(self.grants) > LIMIT_KNOWN:
                del self.grants[next(iter(self.grants))]
        if grant.expires and self._clock() > grant.expires:
            raise Refusal(Reason.EXPIRED, author)

    def _signed(self, key: str, sequence: int, body: bytes) -> bytes:
        # The key has no NUL and the sequence a fixed length: no two different messages read the same.
        where = f"{self._ticket.swarm}\0{key}\0".encode()
        return _DOMAIN + where + sequence.to_bytes(8, "big") + body

    def _cipher(self, nonce: bytes) -> ChaCha20Poly1305:
        assert self._ticket.seal is not None
        key = hashlib.blake2b(nonce, digest_size=32, key=self._ticket.seal, person=b"waggle seal 1").digest()
        return ChaCha20Poly1305(key)
