"""Keys: what a swarm's messages are called on the network.

A group or a card: `waggle/<major>/<swarm>/<kind>/<address, a bit a chunk>/<author>`; a presence token:
`waggle/<major>/<swarm>/here/<author>/<session>`, with `eyes` for one who only looks. A key is signed with
its message, so nothing can be moved to another one.
"""

from collections.abc import Iterable

from waggledance.rollout import Author
from waggledance.swarm.ear import BITS
from waggledance.swarm.wire import MAJOR

GROUPS, CARDS, HERE, EYES = "groups", "cards", "here", "eyes"
_CHUNKS = 5 + BITS


def key_of(swarm: str, kind: str, address: int, author: Author) -> str:
    return f"{_top(swarm, kind)}/{'/'.join(f'{address:0{BITS}b}')}/{author}"


def listening(swarm: str, kind: str, prefixes: Iterable[str]) -> list[str]:
    """The expressions that match every key of a kind under these address prefixes."""
    return ["/".join([_top(swarm, kind), *prefix, "**"]) for prefix in prefixes]


def author_in(key: str) -> Author | None:
    """Whose key it is; None for one that is no message's."""
    parts = key.split("/")
    return Author(parts[-1]) if len(parts) == _CHUNKS else None


def kind_in(key: str) -> str:
    return key.split("/", 4)[3]


def address_in(key: str) -> int | None:
    bits = key.split("/")[4 : 4 + BITS]
    return int("".join(bits), 2) if len(bits) == BITS and set(bits) <= {"0", "1"} else None


def token_of(swarm: str, kind: str, author: Author, session: str) -> str:
    return f"{_top(swarm, kind)}/{author}/{session}"


def tokens_of(swarm: str, kind: str) -> str:
    return f"{_top(swarm, kind)}/*/*"


def session_in(token: str) -> tuple[Author, str] | None:
    parts = token.split("/")
    return (Author(parts[4]), parts[5]) if len(parts) == 6 else None


def _top(swarm: str, kind: str) -> str:
    return f"waggle/{MAJOR}/{swarm}/{kind}"
