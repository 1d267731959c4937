"""Foundings: a swarm's secrets, as whoever founded it keeps them, and the tickets cut from them.

One file a swarm, for its owner's eyes. Rotating draws new secrets under the old name: what was sealed with
the old ones is no longer understood, and older tickets open nothing any more.
"""

import fcntl
import os
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from waggledance.errors import MissingError, StorageError, UsageError
from waggledance.swarm.endpoint import check_endpoint
from waggledance.swarm.grant import KEY_BYTES, Key, grant, public_of
from waggledance.swarm.identity import write_secret
from waggledance.swarm.ticket import ROUTERS_LIMIT, VERSION, Role, SwarmId, Ticket, links_of
from waggledance.swarm.wire import is_name

FOLDER, SUFFIX = "swarms", ".json"


class Founding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    swarm: SwarmId
    founder: Key | None
    """The private key; None in an open swarm."""
    secret: Key
    """The seal; in an open swarm the links' key, which every ticket tells everyone."""
    lan: bool = False
    routers: tuple[str, ...] = ()
    authority: str = ""

    @property
    def is_open(self) -> bool:
        return self.founder is None


def found(name: str, *, is_open: bool = False) -> Founding:
    if not is_name(name):
        raise UsageError(f"{name!r} cannot name a swarm: use letters, digits and ._- (64 at most)")
    founder = None if is_open else os.urandom(KEY_BYTES)
    return Founding(name, os.urandom(8).hex(), founder, os.urandom(KEY_BYTES))


def rotated(founding: Founding) -> Founding:
    new = found(founding.name, is_open=founding.is_open)
    return msgspec.structs.replace(founding, swarm=new.swarm, founder=new.founder, secret=new.secret)


def reaching(founding: Founding, *, lan: bool, routers: tuple[str, ...], authority: str) -> Founding:
    """The same swarm, to be met elsewhere."""
    if len(routers) > ROUTERS_LIMIT:
        raise UsageError(f"{len(routers)} routers: a ticket holds {ROUTERS_LIMIT} at most")
    for endpoint in routers:
        check_endpoint(endpoint)
    if authority and not routers:
        raise UsageError("an authority is for the routers' certificates, and there is no router; name one")
    return msgspec.structs.replace(founding, lan=lan, routers=routers, authority=authority)


def cut(founding: Founding, role: Role = Role.MEMBER, expires: int = 0) -> Ticket:
    """A ticket, with a seat of its own for a member."""
    founder, seat, granted = founding.founder, None, None
    if founder is not None and role is Role.MEMBER:
        seat = os.urandom(KEY_BYTES)
        granted = grant(founder, founding.swarm, public_of(seat), expires).signature
    sealed = founder is not None and role is not Role.ROUTER
    return Ticket(
        version=VERSION,
        name=founding.name,
        swarm=founding.swarm,
        role=role,
        expires=expires,
        lan=founding.lan,
        routers=founding.routers,
        authority=founding.authority,
        founder=None if founder is None else public_of(founder),
        seal=founding.secret if sealed else None,
        links=None if sealed else founding.secret if founding.is_open else links_of(founding.secret),
        seat=seat,
        granted=granted,
    )


def keep(founding: Founding, home: Path) -> None:
    write_secret(_place(home, founding.name), msgspec.json.format(msgspec.json.encode(founding)))


def kept(home: Path, name: str) -> Founding | None:
    """The founding of this name; None where there is none yet."""
    path = _place(home, name)
    try:
        return msgspec.json.decode(path.read_bytes(), type=Founding)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise MissingError(f"cannot read {path}: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MissingError(
            f"{path} holds no swarm's keys: {error}; put the right file back, or remove it to found it anew"
        ) from error


def kept_or_new(home: Path, name: str) -> Founding:
    founding = kept(home, name)
    if founding is not None:
        return founding
    with alone(home, name):
        founding = kept(home, name)
        if founding is None:
            founding = found(name)
            keep(founding, home)
    return founding


@contextmanager
def alone(home: Path, name: str) -> Generator[None]:
    """Until it is left nobody else changes what is kept: two nodes that start at the same moment must not
    found two swarms of one name."""
    folder = _place(home, name).parent
    with ExitStack() as ends:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            ends.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            raise StorageError(
                f"cannot keep swarms in {folder}: {error.strerror}; name another folder with --home"
            ) from error
        yield


def _place(home: Path, name: str) -> Path:
    if not is_name(name):
        raise UsageError(f"{name!r} cannot name a swarm: use letters, digits and ._- (64 at most)")
    try:
        return home.expanduser() / FOLDER / f"{name}{SUFFIX}"
    except RuntimeError as error:  # ~somebody, who is not known here
        raise UsageError(f"home = {str(home)!r}: {error} name a folder") from error
