"""Identity: a node's Ed25519 key, kept in a file that only its owner may read.

An author is a name and a fingerprint of the key, `alice.k3v9w2qab4nmzr7p`: the name is for people, the
fingerprint for the wire. Every start takes a higher session number, and no message of a session a number
twice; so what a node sent can be put in order without a clock and nothing can be sent a second time by
others.
"""

import base64
import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from waggledance.errors import MissingError, StorageError
from waggledance.rollout import Author
from waggledance.swarm.grant import public_of

KEY, SESSION = "identity", "session"
"""Files in a run's folder."""
SEED_BYTES = 32
FINGERPRINT_BYTES = 10
SESSION_BITS = 31
"""Sessions above it would make sequences that a signed 64-bit integer cannot hold."""
LAST_CLOCK_SESSION = 2**SESSION_BITS - 2**24
"""A clock may be wrong by decades: it must not use up the sessions that the next starts need."""


def fingerprint(public: bytes) -> str:
    """Sixteen letters and digits: eighty bits, more than anyone can search for a second key of the same."""
    digest = hashlib.blake2b(public, digest_size=FINGERPRINT_BYTES, person=b"waggle author").digest()
    return base64.b32encode(digest).decode().lower()


def author_of(name: str, public: bytes) -> Author:
    return Author(f"{name}.{fingerprint(public)}")


def fingerprint_in(author: Author) -> str:
    return author.rpartition(".")[2]


@dataclass(frozen=True)
class Identity:
    author: Author
    public: bytes
    session: int
    sign: Callable[[bytes], bytes]
    next_sequence: Callable[[], int]
    """Higher with every call and every start."""


def make_identity(name: str, seed: bytes, session: int) -> Identity:
    key = Ed25519PrivateKey.from_private_bytes(seed)
    public = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    numbers = count(session << 32)
    return Identity(author_of(name, public), public, session, key.sign, lambda: next(numbers))


def kept_key(folder: Path) -> str:
    """The fingerprint of the folder's key."""
    return fingerprint(public_of(_seed(folder / KEY)))


def open_identity(folder: Path, name: str, now: float) -> Identity:
    """The folder's identity, made if there is none; counts one more session.

    The clock only helps: a folder that was restored from an old copy would else repeat sessions.
    """
    seed = _seed(folder / KEY)
    session = max(_last_session(folder / SESSION) + 1, min(int(now), LAST_CLOCK_SESSION))
    write_secret(folder / SESSION, str(session).encode())
    return make_identity(name, seed, session)


def _seed(path: Path) -> bytes:
    if not os.path.lexists(path):
        write_secret(path, os.urandom(SEED_BYTES).hex().encode())
    try:
        seed = bytes.fromhex(path.read_text(encoding="ascii"))
    except OSError as error:
        raise MissingError(f"cannot read the identity {path}: {error.strerror}") from error
    except ValueError:
        seed = b""
    if len(seed) != SEED_BYTES:
        raise MissingError(
            f"{path} is no identity: {2 * SEED_BYTES} hexadecimal digits are; put the right file back, "
            "or remove it to become somebody new"
        )
    return seed


def _last_session(path: Path) -> int:
    """0 where none can be read: then the clock must do."""
    try:
        session = int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0
    return session if 0 <= session < 2**SESSION_BITS - 1 else 0


def write_secret(path: Path, content: bytes) -> None:
    """Written whole or not at all, and readable by nobody else at any moment."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        with suppress(OSError):
            beside.unlink()
        raise StorageError(
            f"cannot write {path}: {error.strerror}; free some space or name another folder"
        ) from error
