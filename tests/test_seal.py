"""The seal: what is honest comes in, what is forged, moved, changed or repeated does not, and why is told."""

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waggledance.rollout import Author
from waggledance.swarm import seal as seal_module
from waggledance.swarm.ear import ADDRESSES, address_of
from waggledance.swarm.founding import Founding, cut, found, rotated
from waggledance.swarm.identity import Identity, fingerprint_in, make_identity
from waggledance.swarm.key import CARDS, GROUPS, key_of
from waggledance.swarm.mailbox import Letter
from waggledance.swarm.seal import SwarmSeal, Unsealed
from waggledance.swarm.ticket import Role, Ticket, watching
from waggledance.swarm.window import Windows
from waggledance.swarm.wire import BODY_LIMIT_BYTES, MAJOR, MESSAGE_LIMIT_BYTES, Reason, Refusal

LAB, SQUARE = found("lab"), found("square", is_open=True)
BODY = b"what ant tried"
NOW = 1_800_000_000
HOUR_S = 3600.0


def who(name: str) -> Identity:
    return make_identity(name, name.encode().ljust(32, b"."), session=1)


ANT, BEE = who("ant"), who("bee")


def seal_of(
    ticket: Ticket,
    identity: Identity,
    windows: Windows | None = None,
    clock: Callable[[], float] = lambda: NOW,
) -> SwarmSeal:
    return SwarmSeal(ticket, identity, windows or Windows(), clock)


def key(founding: Founding, author: Author, sequence: int, kind: str = GROUPS) -> str:
    return key_of(founding.swarm, kind, address_of(author, sequence), author)


def letter(
    founding: Founding, writer: SwarmSeal, author: Author, sequence: int, body: bytes = BODY
) -> Letter:
    where = key(founding, author, sequence)
    return Letter(where, writer.close(where, sequence, body))


def refusal(reader: SwarmSeal, sent: Letter) -> Refusal:
    with pytest.raises(Refusal) as caught:
        reader.open(sent.key, sent.message)
    return caught.value


def reason(reader: SwarmSeal, sent: Letter) -> Reason:
    return refusal(reader, sent).reason


@pytest.fixture(params=[LAB, SQUARE], ids=["private", "open"])
def founding(request: pytest.FixtureRequest) -> Founding:
    return request.param


@pytest.fixture
def ant(founding: Founding) -> SwarmSeal:
    return seal_of(cut(founding), ANT)


@pytest.fixture
def bee(founding: Founding) -> SwarmSeal:
    return seal_of(cut(founding), BEE)


@given(st.binary(max_size=2000), st.integers(0, 2**63 - 1), st.sampled_from([LAB, SQUARE]))
def test_what_is_sealed_opens_to_its_author_and_body(body: bytes, sequence: int, founding: Founding) -> None:
    sent = letter(founding, seal_of(cut(founding), ANT), ANT.author, sequence, body)
    assert seal_of(cut(founding), BEE).open(*sent) == (ANT.author, body)


def test_what_a_full_message_holds_fits(founding: Founding, ant: SwarmSeal, bee: SwarmSeal) -> None:
    sent = letter(founding, ant, ANT.author, 1, bytes(BODY_LIMIT_BYTES))
    assert len(sent.message) <= MESSAGE_LIMIT_BYTES
    assert bee.open(*sent)[0] == ANT.author


def test_nothing_of_a_private_message_can_be_read_on_its_way() -> None:
    ant = seal_of(cut(LAB), ANT)
    first, second = (letter(LAB, ant, ANT.author, 1, BODY * 20) for _ in range(2))
    assert BODY not in first.message
    assert ANT.public not in first.message
    assert first.message != second.message, "equal messages must not look equal"


def test_every_single_flipped_bit_is_refused(founding: Founding, ant: SwarmSeal, bee: SwarmSeal) -> None:
    sent = letter(founding, ant, ANT.author, 1)
    reasons: Counter[Reason] = Counter()
    for bit in range(8 * len(sent.message)):
        flipped = bytearray(sent.message)
        flipped[bit // 8] ^= 1 << bit % 8
        reasons[reason(bee, sent._replace(message=bytes(flipped)))] += 1
    assert reasons.pop(Reason.VERSION) == 8
    if founding is LAB:
        assert set(reasons) == {Reason.SEAL}
    else:
        assert set(reasons) <= {Reason.FORGED, Reason.MALFORMED}
    assert bee.open(*sent) == (ANT.author, BODY), "none of them used up the number"


def test_a_message_cut_anywhere_is_refused(founding: Founding, ant: SwarmSeal, bee: SwarmSeal) -> None:
    sent = letter(founding, ant, ANT.author, 1)
    for length in range(len(sent.message)):
        assert reason(bee, sent._replace(message=sent.message[:length])) in {Reason.SEAL, Reason.MALFORMED}
    assert reason(bee, sent._replace(message=sent.message + b"\0")) in {Reason.SEAL, Reason.MALFORMED}


def elsewhere(founding: Founding) -> Iterator[str]:
    """Every other place that ant's first message could be put."""
    right = address_of(ANT.author, 1)
    yield key_of(founding.swarm, CARDS, right, ANT.author)
    yield key_of(founding.swarm, GROUPS, (right + 1) % ADDRESSES, ANT.author)
    yield key_of(found("lab").swarm, GROUPS, right, ANT.author)


def test_a_message_moved_to_another_place_is_refused(
    founding: Founding, ant: SwarmSeal, bee: SwarmSeal
) -> None:
    sent = letter(founding, ant, ANT.author, 1)
    moved = Reason.SEAL if founding is LAB else Reason.FORGED
    for place in elsewhere(founding):
        refused = refusal(bee, sent._replace(key=place))
        assert (refused.reason, refused.author) == (moved, None)
    assert reason(bee, sent._replace(key=key(founding, BEE.author, 1))) is moved
    assert reason(bee, sent._replace(key="")) is moved
    assert bee.open(*sent) == (ANT.author, BODY)


def test_a_message_of_another_swarm_of_the_same_name_is_refused(founding: Founding, bee: SwarmSeal) -> None:
    other = found(founding.name, is_open=founding.is_open)
    stranger = seal_of(cut(other), ANT)
    brought = Letter(key(founding, ANT.author, 1), letter(other, stranger, ANT.author, 1).message)
    assert reason(bee, brought) is (Reason.FORGED if founding.is_open else Reason.SEAL)
    posing = letter(founding, stranger, ANT.author, 1)
    assert reason(bee, posing) is (Reason.FORGED if founding.is_open else Reason.SEAL)


def test_a_member_cannot_write_in_another_s_name(founding: Founding, bee: SwarmSeal) -> None:
    """Whoever holds the swarm's secret still has no more than one key to sign with."""
    cicada = who("cicada")
    thief = seal_of(cut(founding), cicada)
    assert reason(bee, letter(founding, thief, ANT.author, 1)) is Reason.FORGED
    namesake = Author(f"ant.{fingerprint_in(cicada.author)}")
    assert bee.open(*letter(founding, thief, namesake, 1))[0] != ANT.author, "a name alone is nobody's"


def test_a_key_that_names_no_author_is_forged(founding: Founding, ant: SwarmSeal, bee: SwarmSeal) -> None:
    for place in ("", "waggle", "a/b/c", f"{key(founding, ANT.author, 1)}/more"):
        assert reason(bee, Letter(place, ant.close(place, 1, BODY))) is Reason.FORGED


def test_a_watcher_reads_and_is_not_listened_to() -> None:
    watcher = seal_of(cut(LAB, Role.WATCHER), who("cicada"))
    bee = seal_of(cut(LAB), BEE)
    assert watcher.open(*letter(LAB, seal_of(cut(LAB), ANT), ANT.author, 1)) == (ANT.author, BODY)
    spoken = refusal(bee, letter(LAB, watcher, who("cicada").author, 1))
    assert (spoken.reason, spoken.author) == (Reason.GRANT, who("cicada").author)


def test_a_member_s_ticket_with_the_seat_of_another_swarm_is_not_listened_to() -> None:
    other = cut(found("lab"))
    patched = msgspec.structs.replace(cut(LAB), seat=other.seat, granted=other.granted)
    bee = seal_of(cut(LAB), BEE)
    assert reason(bee, letter(LAB, seal_of(patched, ANT), ANT.author, 1)) is Reason.GRANT


def test_half_a_passport_is_none() -> None:
    bee, ant = seal_of(cut(LAB), BEE), seal_of(cut(LAB), ANT)
    sent = letter(LAB, ant, ANT.author, 1)
    for without in ("grant", "vouched"):
        halved = resealed(sent, **{without: None})
        assert reason(bee, halved) is Reason.GRANT


def resealed(sent: Letter, **changes: object) -> Letter:
    """A message that a member took apart and put together again with the swarm's own secret."""
    any_seal = seal_of(cut(LAB), BEE)
    envelope = any_seal._envelope(any_seal._unsealed(sent.key, sent.message[1:]))  # pyright: ignore[reportPrivateUsage]
    changed = msgspec.msgpack.encode(msgspec.structs.replace(envelope, **changes))
    nonce = os.urandom(seal_module.NONCE_BYTES)
    cipher = any_seal._cipher(nonce)  # pyright: ignore[reportPrivateUsage]
    return sent._replace(
        message=bytes((MAJOR,)) + nonce + cipher.encrypt(bytes(12), changed, sent.key.encode())
    )


def test_a_member_cannot_change_what_another_wrote() -> None:
    bee, ant = seal_of(cut(LAB), BEE), seal_of(cut(LAB), ANT)
    sent = letter(LAB, ant, ANT.author, 1)
    assert bee.open(*resealed(sent)) == (ANT.author, BODY), "the tool of this test works"
    assert reason(bee, resealed(sent)) is Reason.REPLAY, "a new wrapping makes no new message"
    for change in ({"sequence": 2}, {"body": b"what bee likes"}, {"signature": bytes(64)}):
        assert reason(bee, resealed(sent, **change)) is Reason.FORGED
    assert reason(bee, resealed(sent, public=BEE.public)) is Reason.FORGED
    assert reason(bee, resealed(sent, vouched=bytes(64))) is Reason.GRANT


def test_a_router_reads_nothing() -> None:
    router = seal_of(cut(LAB, Role.ROUTER), who("router"))
    sent = letter(LAB, seal_of(cut(LAB), ANT), ANT.author, 1, BODY * 20)
    assert reason(router, sent) is Reason.MALFORMED
    pretended = msgspec.structs.replace(cut(LAB, Role.WATCHER), seal=cut(LAB, Role.ROUTER).links)
    assert reason(seal_of(pretended, who("router")), sent) is Reason.SEAL


def test_after_rotating_old_and_new_do_not_understand_each_other() -> None:
    new = rotated(LAB)
    old_ant, new_ant = seal_of(cut(LAB), ANT), seal_of(cut(new), ANT)
    assert reason(seal_of(cut(new), BEE), letter(new, old_ant, ANT.author, 1)) is Reason.SEAL
    assert reason(seal_of(cut(LAB), BEE), letter(LAB, new_ant, ANT.author, 1)) is Reason.SEAL
    assert seal_of(cut(new), BEE).open(*letter(new, new_ant, ANT.author, 1)) == (ANT.author, BODY)


def test_in_an_open_swarm_anyone_speaks_and_is_who_they_are() -> None:
    bee = seal_of(cut(SQUARE), BEE)
    for name in ("ant", "cicada"):
        stranger = who(name)
        sent = letter(SQUARE, seal_of(watching(cut(SQUARE)), stranger), stranger.author, 1)
        assert bee.open(*sent) == (stranger.author, BODY)


@pytest.mark.parametrize(("clock_s", "heard"), [(NOW - HOUR_S, True), (NOW, True), (NOW + HOUR_S, False)])
def test_a_grant_ends_by_the_reader_s_clock(clock_s: float, heard: bool) -> None:
    ant = seal_of(cut(LAB, expires=NOW), ANT)
    bee = seal_of(cut(LAB), BEE, clock=lambda: clock_s)
    sent = letter(LAB, ant, ANT.author, 1)
    if heard:
        assert bee.open(*sent) == (ANT.author, BODY)
    else:
        late = refusal(bee, sent)
        assert (late.reason, late.author) == (Reason.EXPIRED, ANT.author)


def test_a_grant_ends_while_it_is_used() -> None:
    """Passports are looked at once; their date every time."""
    now = [float(NOW)]
    ant, bee = seal_of(cut(LAB, expires=NOW + 1), ANT), seal_of(cut(LAB), BEE, clock=lambda: now[0])
    bee.open(*letter(LAB, ant, ANT.author, 1))
    now[0] += 2
    assert reason(bee, letter(LAB, ant, ANT.author, 2)) is Reason.EXPIRED


@given(st.lists(st.floats(-HOUR_S, HOUR_S), min_size=1, max_size=20))
def test_a_clock_that_jumps_does_not_matter_without_a_date(jumps: list[float]) -> None:
    now = [0.0]
    ant, bee = (seal_of(cut(LAB), identity, clock=lambda: now[0]) for identity in (ANT, BEE))
    for sequence, jump in enumerate(jumps):
        now[0] = NOW + jump
        assert bee.open(*letter(LAB, ant, ANT.author, sequence)) == (ANT.author, BODY)


def test_cheap_checks_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is refused for less must not cost more: each message here is wrong in all that follows, too."""
    costs: list[str] = []

    class Counted(SwarmSeal):
        def _unsealed(self, key: str, content: bytes) -> bytes:
            costs.append("cipher")
            return super()._unsealed(key, content)

        def _check_signature(self, key: str, envelope: object) -> None:
            costs.append("signature")
            super()._check_signature(key, envelope)  # pyright: ignore[reportArgumentType]

    def counted_passport(*arguments: object) -> bool:
        costs.append("passport")
        return is_sound(*arguments)  # pyright: ignore[reportArgumentType]

    is_sound = seal_module.is_sound
    monkeypatch.setattr(seal_module, "is_sound", counted_passport)
    bee = Counted(cut(LAB), BEE, Windows(), lambda: NOW)

    def cost(sent: Letter) -> tuple[Reason, list[str]]:
        costs.clear()
        return reason(bee, sent), list(costs)

    watcher = seal_of(cut(LAB, Role.WATCHER), who("cicada"))
    right = letter(LAB, watcher, who("cicada").author, 1)
    assert cost(right._replace(message=b"\x07" + bytes(MESSAGE_LIMIT_BYTES))) == (Reason.OVERSIZE, [])
    assert cost(right._replace(message=b"")) == (Reason.MALFORMED, [])
    assert cost(right._replace(message=b"\x07" + right.message[1:])) == (Reason.VERSION, [])
    assert cost(right._replace(message=right.message[:-1])) == (Reason.SEAL, ["cipher"])
    posing = letter(LAB, watcher, ANT.author, 1)
    assert cost(posing) == (Reason.FORGED, ["cipher"])
    assert cost(resealed(right, signature=bytes(64))) == (Reason.FORGED, ["cipher", "signature"])
    assert cost(right) == (Reason.GRANT, ["cipher", "signature"])
    ant = seal_of(cut(LAB), ANT)
    bee.open(*letter(LAB, ant, ANT.author, 1))
    assert cost(letter(LAB, ant, ANT.author, 1)) == (Reason.REPLAY, ["cipher", "signature"])


def test_what_is_remembered_of_passports_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seal_module, "LIMIT_KNOWN", 4)
    bee = seal_of(cut(LAB), BEE)
    for number in range(12):
        member = who(f"m{number}")
        bee.open(*letter(LAB, seal_of(cut(LAB), member), member.author, 1))
        assert len(bee._known) <= 4  # pyright: ignore[reportPrivateUsage]


def test_without_a_seal_the_key_says_who_wrote_it() -> None:
    nothing = Unsealed()
    where = key(LAB, ANT.author, 1)
    assert nothing.open(where, nothing.close(where, 1, BODY)) == (ANT.author, BODY)
    with pytest.raises(Refusal, match="malformed"):
        nothing.open("waggle/1", BODY)


Attack = Callable[[random.Random, int], Letter]


class Siege:
    """A swarm of three members, and everybody who would like to be heard in it and may not."""

    def __init__(self, founding: Founding, heard: Path) -> None:
        self.founding = founding
        self.members = [who(name) for name in ("ant", "cicada", "dragonfly")]
        self.seals = [seal_of(cut(founding), member) for member in self.members]
        self.rival = found(founding.name, is_open=founding.is_open)
        self.rivals = [seal_of(cut(self.rival), member) for member in self.members]
        self.watcher = seal_of(cut(founding, Role.WATCHER), who("eve"))
        self.thief = seal_of(cut(founding), who("eve"))
        self.heard = heard
        self.reader = self._fresh()

    def _fresh(self) -> SwarmSeal:
        return seal_of(cut(self.founding), BEE, Windows(self.heard))

    def restart(self) -> None:
        """The reader is killed after a round and starts again."""
        self.reader._windows.save()  # pyright: ignore[reportPrivateUsage]
        self.reader = self._fresh()

    def honest(self, draw: random.Random, number: int) -> Letter:
        one = number % len(self.members)
        body = draw.randbytes(draw.randrange(400))
        return letter(self.founding, self.seals[one], self.members[one].author, number, body)

    def forged(self, draw: random.Random, number: int) -> Letter:
        victim = draw.choice(self.members).author
        writers = [self.thief, *self.rivals]
        if not self.founding.is_open:
            writers.append(self.watcher)
        writer = draw.choice(writers)
        author = who("eve").author if writer is self.watcher else victim
        return letter(self.founding, writer, author, number)

    def misdirected(self, draw: random.Random, number: int) -> Letter:
        sent = self.honest(draw, number)
        other = self.members[(number + 1) % len(self.members)].author
        own = self.members[number % len(self.members)].author
        address = (address_of(own, number) + draw.randrange(1, ADDRESSES)) % ADDRESSES
        places = [
            key(self.founding, own, number, CARDS),
            key(self.founding, other, number),
            key(self.rival, own, number),
            key_of(self.founding.swarm, GROUPS, address, own),
        ]
        return sent._replace(key=draw.choice(places))

    def flipped(self, draw: random.Random, number: int) -> Letter:
        sent = self.honest(draw, number)
        spoilt = bytearray(sent.message)
        bit = draw.randrange(8 * len(spoilt))
        spoilt[bit // 8] ^= 1 << bit % 8
        return sent._replace(message=bytes(spoilt))

    def accepted(self, letters: list[Letter]) -> int:
        accepted = 0
        for sent in letters:
            try:
                self.reader.open(*sent)
                accepted += 1
            except Refusal:
                pass
        return accepted


@pytest.mark.parametrize("count", [200, pytest.param(10_000, marks=pytest.mark.slow)])
def test_of_all_hostile_messages_none_and_of_all_honest_ones_each_is_let_in(
    count: int, founding: Founding, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Prints its figures: `pytest -s -m slow tests/test_seal.py`."""
    siege, draw = Siege(founding, tmp_path / "heard"), random.Random(7)
    honest = [siege.honest(draw, number) for number in range(count)]
    # Neighbours overtake each other, as over two routers.
    for start in range(0, count, 16):
        block = honest[start : start + 16]
        draw.shuffle(block)
        honest[start : start + 16] = block
    figures: dict[str, int] = {}
    began = time.perf_counter()
    figures["honest refused"] = count - siege.accepted(honest)
    opened_us = 1e6 * (time.perf_counter() - began) / count
    for attack in (siege.forged, siege.misdirected, siege.flipped):
        figures[f"{attack.__name__} accepted"] = siege.accepted(
            [attack(draw, count + number) for number in range(count)]
        )
    figures["replayed accepted"] = siege.accepted(honest[: count // 2])
    siege.restart()
    figures["replayed accepted"] += siege.accepted(honest[count // 2 :])
    kind = "open" if founding.is_open else "private"
    print(f"\n{kind} swarm, {count:,} each: {figures}; {opened_us:.0f} µs to open one")  # noqa: T201
    for name, figure in figures.items():
        record_property(name, figure)
    assert set(figures.values()) == {0}
