"""The wire: every valid group survives the trip, and nothing else comes through."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waggledance.draw import PLACES_LIMIT
from waggledance.rollout import Author, Carried, Group, Rollout
from waggledance.seams import Card
from waggledance.swarm import wire
from waggledance.swarm.wire import Reason, Refusal, decode, decode_card, encode, encode_card
from waggledance.task import Digest, SourceName

ANT = Author("ant")

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True)
sources = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}", fullmatch=True)
texts = st.text(st.characters(codec="utf-8"), max_size=200)
counts = st.integers(0, wire.COUNT_LIMIT - 1)
rollouts = st.builds(
    Rollout,
    text=texts,
    finished=st.booleans(),
    tokens=counts,
    mean_logprob=st.floats(wire.LOGPROB_FLOOR, wire.LOGPROB_TOLERANCE),
)
groups = st.builds(
    Group,
    author=names.map(Author),
    round=counts,
    source=sources.map(SourceName),
    digest=sources.map(Digest),
    index=counts,
    rollouts=st.lists(rollouts, min_size=1, max_size=wire.ROLLOUTS_LIMIT).map(tuple),
    place=st.integers(0, PLACES_LIMIT - 1),
    carried=st.none() | st.builds(Carried, texts, st.from_regex(r"[a-z][a-z_]{0,31}", fullmatch=True), texts),
)


def a_group(**changes: Any) -> Group:
    rollout = Rollout("the answer is 4", finished=True, tokens=5, mean_logprob=-0.25)
    group = Group(ANT, 3, SourceName("arithmetic"), Digest("abc123"), 17, (rollout, rollout))
    return replace(group, **changes)


def with_rollout(**changes: Any) -> Group:
    group = a_group()
    return replace(group, rollouts=(replace(group.rollouts[0], **changes),))


def fields_of(group: Group) -> list[Any]:
    """A message as plain lists, to spoil."""
    return msgspec.msgpack.decode(encode(group))


def refusal_of(message: bytes, author: Author = ANT) -> Reason:
    with pytest.raises(Refusal) as caught:
        decode(message, author)
    return caught.value.reason


@given(groups)
def test_every_valid_group_survives_the_trip(group: Group) -> None:
    message = encode(group)
    assert decode(message, group.author) == group
    assert encode(group) == message


@settings(max_examples=300)
@given(st.binary(max_size=400))
def test_arbitrary_bytes_are_refused(message: bytes) -> None:
    assert refusal_of(message) in {Reason.MALFORMED, Reason.VERSION}


@settings(max_examples=600)
@given(
    groups, st.lists(st.tuples(st.integers(0), st.integers(1, 255)), min_size=1, max_size=4), st.integers(0)
)
def test_a_mutated_message_is_a_valid_group_or_a_refusal(
    group: Group, flips: list[tuple[int, int]], length: int
) -> None:
    message = bytearray(encode(group))
    for place, bits in flips:
        message[place % len(message)] ^= bits
    for mutant in (bytes(message), bytes(message[: length % len(message)])):
        try:
            decoded = decode(mutant, group.author)
        except Refusal:
            continue
        # What came in keeps every limit, so it could go out again.
        assert decode(encode(decoded), group.author) == decoded


def test_token_ids_stay_at_home() -> None:
    group = with_rollout(token_ids=(1, 2, 3))
    assert encode(group) == encode(with_rollout())
    assert decode(encode(group), ANT).rollouts[0].token_ids == ()


@pytest.mark.parametrize(
    "group",
    [
        a_group(author=Author("")),
        a_group(author=Author("a/b")),
        a_group(author=Author("ant\n")),
        a_group(author=Author("*")),
        a_group(author=Author("a" * 97)),
        a_group(source=SourceName("")),
        a_group(source=SourceName("s" * 129)),
        a_group(source=SourceName("[bold]")),
        a_group(digest=Digest("\u202e")),
        a_group(index=-1),
        a_group(index=2**63),
        a_group(round=-1),
        a_group(place=-1),
        a_group(place=PLACES_LIMIT),
        a_group(carried=Carried("q" * 8193, "text", "a")),
        a_group(carried=Carried("q", "text", "a" * 8193)),
        a_group(carried=Carried("q", "", "a")),
        a_group(carried=Carried("q", "os.system", "a")),
        a_group(rollouts=()),
        a_group(rollouts=a_group().rollouts * 33),
        with_rollout(text="x" * (wire.TEXT_LIMIT_CHARACTERS + 1)),
        with_rollout(tokens=-1),
        with_rollout(mean_logprob=float("nan")),
        with_rollout(mean_logprob=float("-inf")),
        with_rollout(mean_logprob=0.1),
    ],
    ids=repr,
)
def test_out_of_bounds_neither_leaves_nor_enters(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Refusal, match="bounds"):
        encode(group)
    with monkeypatch.context() as careless:
        careless.setattr(wire, "_in_bounds", bool)
        message = encode(group)
    assert refusal_of(message, group.author) is Reason.BOUNDS


def test_an_oversize_group_neither_leaves_nor_enters(monkeypatch: pytest.MonkeyPatch) -> None:
    group = a_group(rollouts=with_rollout(text="x" * 60_000).rollouts * 5)
    with pytest.raises(Refusal, match="oversize"):
        encode(group)
    with monkeypatch.context() as careless:
        careless.setattr(wire, "BODY_LIMIT_BYTES", 2**30)
        message = encode(group)
    assert refusal_of(message) is Reason.OVERSIZE


def test_half_a_surrogate_pair_does_not_leave() -> None:
    with pytest.raises(Refusal, match="malformed"):
        encode(with_rollout(text="\ud800"))


def test_invalid_utf8_is_malformed() -> None:
    spoilt = encode(a_group()).replace(b"the answer", b"the \xff\xfe\xfdswer")
    assert refusal_of(spoilt) is Reason.MALFORMED


def test_a_field_too_many_is_malformed() -> None:
    message = fields_of(a_group())
    assert refusal_of(msgspec.msgpack.encode([*message, 1.0])) is Reason.MALFORMED
    message[6][0].append(1.0)
    assert refusal_of(msgspec.msgpack.encode(message)) is Reason.MALFORMED
    message = fields_of(a_group(carried=Carried("q", "text", "a")))
    message[-1].append("b")
    assert refusal_of(msgspec.msgpack.encode(message)) is Reason.MALFORMED


def test_a_group_of_the_first_minor_version_is_understood() -> None:
    """It has neither place nor carried task."""
    major, _, *fields = fields_of(a_group())
    assert decode(msgspec.msgpack.encode([major, 0, *fields[:5]]), ANT) == a_group()


def test_a_newer_minor_version_is_understood_and_its_new_fields_are_passed_over() -> None:
    major, minor, *fields = fields_of(a_group())
    newer = msgspec.msgpack.encode([major, minor + 1, *fields, {"new": "thing"}, 7])
    assert decode(newer, ANT) == a_group()
    card = Card("tiny", 7, "9.9", {SourceName("arithmetic"): Digest("d1")}, round=3)
    major, minor, *fields = msgspec.msgpack.decode(encode_card(card))
    assert decode_card(msgspec.msgpack.encode([major, minor + 1, *fields, "new"])) == card


@pytest.mark.parametrize("place", range(1, 8))
def test_another_type_is_malformed(place: int) -> None:
    message = fields_of(a_group())
    message[place] = None
    assert refusal_of(msgspec.msgpack.encode(message)) is Reason.MALFORMED


def test_another_version_is_refused_by_name_whatever_follows() -> None:
    assert refusal_of(msgspec.msgpack.encode([2, {"from": "the future"}])) is Reason.VERSION


@pytest.mark.parametrize(
    "bomb",
    [
        b"\x91" * 200_000,
        b"\x92\x01" + b"\x91" * 200_000,
        b"\x97\x01\xdb\xff\xff\xff\xff",
        b"\xdd\xff\xff\xff\xff\x01",
    ],
    ids=["nested", "nested behind a version", "long text claimed", "long array claimed"],
)
def test_bombs_are_malformed(bomb: bytes) -> None:
    assert refusal_of(bomb) is Reason.MALFORMED
