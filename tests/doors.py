"""Every place where bytes of others come in, as one function for fuzzers: `feed(bytes)`.

The first byte picks the door. What comes out of a door is what it promises (a group or a card within all
limits, an author whose signature held) or a refusal; anything else escapes as an exception, and that is
the finding. Doors behind the seal are fed through it, signed and sealed by a member gone bad, so that
fuzzing gets past the signature.
"""

import random
from collections.abc import Callable
from contextlib import suppress

from waggledance.errors import UsageError
from waggledance.rollout import Author, Group, Rollout
from waggledance.seams import Card
from waggledance.sharing.habit import Habits, phrases_of
from waggledance.sharing.ledger import Ledger, read_ledger
from waggledance.swarm.ear import address_of
from waggledance.swarm.founding import Founding, cut, found
from waggledance.swarm.identity import make_identity
from waggledance.swarm.key import GROUPS, address_in, author_in, key_of, kind_in, session_in
from waggledance.swarm.mailbox import Letter, Mailbox, Ring, Tally
from waggledance.swarm.presence import Presence
from waggledance.swarm.seal import NONCE_BYTES, SwarmSeal
from waggledance.swarm.ticket import PREFIX, read_ticket, write_ticket
from waggledance.swarm.window import Windows
from waggledance.swarm.wire import MAJOR, Refusal, decode, decode_card, encode, encode_card
from waggledance.task import Digest, SourceName

ANT, BEE = (make_identity(name, bytes(31) + name[:1].encode(), 7) for name in ("ant", "bee"))
LAB, MARKET = found("lab"), found("market", is_open=True)
NOW = 1_800_000_000.0


def member(founding: Founding) -> SwarmSeal:
    return SwarmSeal(cut(founding), ANT, Windows(), lambda: NOW)


class Reader:
    """A node that opens what comes."""

    def __init__(self, founding: Founding) -> None:
        self.founding = founding
        self.seal = SwarmSeal(cut(founding), BEE, Windows(), lambda: NOW)
        self.sender = member(founding)
        self.tally = Tally()
        self.mailbox = Mailbox(BEE.author, self.seal, Ring(), self.tally)

    def key(self, number: int) -> str:
        return key_of(self.founding.swarm, GROUPS, address_of(ANT.author, number), ANT.author)


READERS = [Reader(LAB), Reader(MARKET)]
HABITS, LEDGER = Habits(), Ledger()
PRESENCE = Presence(BEE.author, lambda: NOW, lambda: NOW)


def a_body(draw: random.Random) -> bytes:
    texts = ["<answer>4</answer>", "So we get 4.", "ü" * draw.randrange(9), ""]
    rollouts = tuple(
        Rollout(draw.choice(texts), draw.random() < 0.5, draw.randrange(99), -draw.random())
        for _ in range(draw.randint(1, 8))
    )
    group = Group(
        ANT.author, draw.randrange(99), SourceName("easy:gcd"), Digest("d1"), draw.randrange(9), rollouts
    )
    return encode(group)


def a_card(draw: random.Random) -> bytes:
    return encode_card(Card("tiny", draw.randrange(10**9), "0.1.0", {SourceName("easy:gcd"): Digest("d1")}))


def wire(content: bytes) -> None:
    with suppress(Refusal):
        group = decode(content, ANT.author)
        assert decode(encode(group), ANT.author) == group, "what came in keeps every limit"
        LEDGER.heard([group.author], group.round % 1000)
        HABITS.is_habit(group)


def card(content: bytes) -> None:
    with suppress(Refusal):
        said = decode_card(content)
        assert decode_card(encode_card(said)) == said
        PRESENCE.told(ANT.author, said)


def signed(content: bytes) -> None:
    """Any body at all, by a member whose signature holds."""
    for reader in READERS:
        number = ANT.next_sequence()
        key = reader.key(number)
        reader.mailbox.put(Letter(key, reader.sender.close(key, number, content)))
        assert all(group.author == ANT.author for group in reader.mailbox.drain())


def sealed(content: bytes) -> None:
    """Any envelope at all, under the swarm's own cipher: nobody's signature holds."""
    for reader in READERS:
        key = reader.key(1)
        nonce = bytes(NONCE_BYTES)
        inside = content
        if reader.founding is LAB:
            cipher = reader.seal._cipher(nonce)  # pyright: ignore[reportPrivateUsage]
            inside = nonce + cipher.encrypt(bytes(12), content, key.encode())
        unopened(reader, key, bytes((MAJOR,)) + inside)


def raw(content: bytes) -> None:
    for reader in READERS:
        unopened(reader, reader.key(1), content)


def unopened(reader: Reader, key: str, message: bytes) -> None:
    try:
        reader.seal.open(key, message)
    except Refusal:
        return
    raise AssertionError("a message that nobody signed was let in")


def ticket(content: bytes) -> None:
    with suppress(UsageError):
        again = write_ticket(read_ticket(PREFIX + content.decode("utf-8", "replace")))
        assert read_ticket(again)


def ledger(content: bytes) -> None:
    read = read_ledger(content)
    assert all(weight > 0 for weight in read.weights(read.authors, {}).values())


def keys(content: bytes) -> None:
    text = content.decode("utf-8", "replace")
    for key in (text, f"waggle/{MAJOR}/lab/{text}"):
        assert author_in(key) is None or address_in(key) is None or "/" in key
        if key.count("/") >= 4:
            kind_in(key)
        named = session_in(key)
        if named is not None:
            PRESENCE.came(*named)
            PRESENCE.went(*named)


def texts(content: bytes) -> None:
    text = content.decode("utf-8", "replace")
    phrases_of(Group(Author("ant"), 1, SourceName("s"), Digest("d"), 0, (Rollout(text, True, 1, -1.0),)))


DOORS: tuple[Callable[[bytes], None], ...] = (
    wire,
    card,
    wire,
    card,
    signed,
    sealed,
    raw,
    ticket,
    ledger,
    keys,
    texts,
)


def feed(content: bytes) -> None:
    if content:
        DOORS[content[0] % len(DOORS)](content[1:])


def seeds(draw: random.Random) -> list[bytes]:
    """Messages that are right, one or more for every door."""
    right: dict[str, list[bytes]] = {
        "wire": [a_body(draw) for _ in range(8)],
        "card": [a_card(draw) for _ in range(4)],
        "ticket": [write_ticket(cut(one)).removeprefix(PREFIX).encode() for one in (LAB, MARKET)],
        "ledger": [full_ledger().encoded()],
        "keys": [READERS[0].key(5).encode(), f"waggle/{MAJOR}/lab/here/{ANT.author}/abc".encode()],
        "texts": [b"So we get 4. <answer>4</answer>"],
    }
    right["signed"] = right["wire"][:2]
    right["sealed"] = [enveloped(READERS[1], body) for body in right["signed"]]
    right["raw"] = [bytes((MAJOR,)) + message for message in right["sealed"]]
    return [bytes((place,)) + content for place, door in enumerate(DOORS) for content in right[door.__name__]]


def enveloped(reader: Reader, body: bytes) -> bytes:
    """Signed for another key than it will be opened on: right in all but that."""
    number = ANT.next_sequence()
    return reader.sender.close(reader.key(number), number, body)[1:]


def full_ledger() -> Ledger:
    full = Ledger()
    full.heard([ANT.author, BEE.author], 3)
    full.refused(ANT.author, "strange", 2, 4)
    return full


NUMBERS = (
    b"\xff" * 8,
    b"\xcf" + b"\xff" * 8,
    b"\xdd\xff\xff\xff\xff",
    b"\xc1",
    b"\xc0",
    b"\x80",
    b"\xdb\x7f\xff\xff\xff",
)
"""What decoders trip over: lengths that lie, numbers at their ends, types that should not stand there."""


def mutated(content: bytes, other: bytes, draw: random.Random) -> bytes:
    spoilt = bytearray(content)
    for _ in range(draw.choice((1, 1, 1, 2, 3, 8))):
        place = draw.randrange(1, len(spoilt) + 1)
        match draw.randrange(6):
            case 0 if place < len(spoilt):
                spoilt[place] ^= 1 << draw.randrange(8)
            case 1:
                spoilt[place:place] = draw.choice(NUMBERS)
            case 2:
                del spoilt[place : place + draw.randint(1, 8)]
            case 3:
                spoilt[place : place + 4] = draw.randbytes(4)
            case 4:
                spoilt[place:] = other[draw.randrange(len(other)) :]
            case _:
                spoilt[place:place] = spoilt[max(1, place - draw.randint(1, 40)) : place]
    return bytes(spoilt)
