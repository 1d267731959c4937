"""Tickets: one string, whole or refused; what each role's holds; grants and passports; a founder's keys."""

import string

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waggledance.errors import UsageError
from waggledance.swarm.founding import Founding, cut, found, reaching
from waggledance.swarm.ticket import (
    LETTERS_LIMIT,
    PREFIX,
    ROUTERS_LIMIT,
    VERSION,
    Role,
    Ticket,
    links_of,
    read_ticket,
    watching,
    write_ticket,
)

FOUNDING = reaching(found("lab"), lan=True, routers=("tls/192.0.2.7:7447",), authority="web")
roles = st.sampled_from(Role)


def founded(name: str, is_open: bool, lan: bool, routers: list[str]) -> Founding:
    authority = "web" if routers else ""
    return reaching(found(name, is_open=is_open), lan=lan, routers=tuple(routers), authority=authority)


foundings = st.builds(
    founded,
    st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True),
    st.booleans(),
    st.booleans(),
    st.lists(st.sampled_from(["tls/192.0.2.7:7447", "tcp/localhost:0", "quic/[::1]:65535"]), max_size=16),
)


def rewritten(**changes: object) -> str:
    """A ticket that somebody made by hand, checksum and all."""
    return write_ticket(msgspec.structs.replace(cut(FOUNDING), **changes))


@given(foundings, roles, st.integers(0, 2**63 - 1))
def test_every_ticket_survives_the_trip(founding: Founding, role: Role, expires: int) -> None:
    ticket = cut(founding, role, expires)
    written = write_ticket(ticket)
    assert read_ticket(written) == ticket
    assert set(written) <= set(string.ascii_letters + string.digits + "-_"), "nothing that a shell would take"
    wrapped = "\n  ".join(written[start : start + 60] for start in range(0, len(written), 60))
    assert read_ticket(f"  {wrapped}\n") == ticket, "mail programs break lines"


@settings(max_examples=300)
@given(st.integers(0), st.sampled_from(string.ascii_letters + string.digits + "-_é%"))
def test_one_wrong_letter_is_refused(place: int, letter: str) -> None:
    written = write_ticket(cut(FOUNDING))
    place %= len(written) - 1  # the last letter has bits to spare: two ways to write one ticket
    spoilt = written[:place] + letter + written[place + 1 :]
    if spoilt == written:
        return
    with pytest.raises(UsageError, match=r"no ticket|mistyped") as caught:
        read_ticket(spoilt)
    assert written[40:60] not in str(caught.value), "an error goes into logs"


@given(st.integers(0, 2_000))
def test_a_ticket_cut_short_is_refused(length: int) -> None:
    written = write_ticket(cut(FOUNDING))
    with pytest.raises(UsageError, match=r"no ticket|cut short"):
        read_ticket(written[: length % len(written)])


@given(st.text(max_size=300))
def test_any_text_is_a_ticket_or_one_clear_line(text: str) -> None:
    for tried in (text, PREFIX + text):
        with pytest.raises(UsageError, match="ticket") as caught:
            read_ticket(tried)
        assert "\n" not in str(caught.value)


def test_a_member_has_seal_and_seat_a_watcher_no_seat_a_router_the_links_alone() -> None:
    member, watcher, router = (cut(FOUNDING, role) for role in Role)
    held = [
        tuple(getattr(ticket, field) is not None for field in ("seal", "links", "seat", "granted"))
        for ticket in (member, watcher, router)
    ]
    assert held == [(True, False, True, True), (True, False, False, False), (False, True, False, False)]
    assert member.links_key == watcher.links_key == router.links_key == links_of(FOUNDING.secret)
    assert router.links != FOUNDING.secret
    for ticket in (member, watcher, router):
        assert FOUNDING.founder is not None
        assert FOUNDING.founder not in msgspec.msgpack.encode(ticket), "the founder's key stays at home"
        assert (FOUNDING.secret in msgspec.msgpack.encode(ticket)) == (ticket is not router)


def test_an_open_swarm_s_tickets_hold_no_secret_of_anyone() -> None:
    founding = found("square", is_open=True)
    member, watcher, router = (cut(founding, role) for role in Role)
    assert member.is_open
    assert {ticket.links for ticket in (member, watcher, router)} == {founding.secret}
    assert {ticket.seal for ticket in (member, watcher, router)} == {None}
    assert {ticket.seat for ticket in (member, watcher, router)} == {None}


def test_no_two_members_share_a_seat() -> None:
    assert cut(FOUNDING).seat != cut(FOUNDING).seat


def test_what_is_left_for_a_watcher_is_a_watcher_s_ticket() -> None:
    left = watching(cut(FOUNDING, expires=7))
    assert left == cut(FOUNDING, Role.WATCHER, 7)
    assert left.passport(bytes(32)) is None
    assert read_ticket(write_ticket(left)) == left


@pytest.mark.parametrize(
    "changes",
    [
        {"seal": None},
        {"seal": None, "links": bytes(32)},
        {"links": bytes(32)},
        {"seat": None},
        {"granted": None},
        {"seat": None, "granted": None},
        {"role": Role.WATCHER},
        {"role": Role.ROUTER},
        {"founder": None},
        {"name": "lab/../.."},
        {"name": "[red]lab"},
        {"name": ""},
    ],
    ids=str,
)
def test_a_ticket_that_is_not_whole_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="not whole"):
        read_ticket(rewritten(**changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"routers": ("pigeon/loft:1",)}, "no links over 'pigeon'"),
        ({"routers": ("tls/h:7447\x1b[2J",)}, "is no endpoint"),
        ({"routers": ("tcp/h:1",) * (ROUTERS_LIMIT + 1)}, "cannot be read"),
        ({"swarm": "../../etc/passwd"}, "cannot be read"),
        ({"swarm": "0123456789abcdef\n"}, "cannot be read"),
        ({"seal": b"short"}, "cannot be read"),
        ({"expires": -1}, "cannot be read"),
        ({"role": "queen"}, "cannot be read"),
        ({"version": VERSION + 1}, f"of version {VERSION + 1}, not {VERSION}"),
    ],
    ids=str,
)
def test_what_a_ticket_says_is_held_to_its_limits(changes: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_ticket(rewritten(**changes))


def test_a_ticket_of_another_version_is_named_whatever_follows() -> None:
    class Later(msgspec.Struct, array_like=True):
        version: int
        news: dict[str, int]

    written = write_ticket(Later(9, {"all": 1}))  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match="of version 9"):
        read_ticket(written)


def test_a_ticket_that_nobody_could_read_is_not_written() -> None:
    huge = reaching(found("lab"), lan=False, routers=("tls/h:1",), authority="x" * LETTERS_LIMIT)
    with pytest.raises(UsageError, match="fewer routers"):
        write_ticket(cut(huge))


@given(st.integers(1, 2**62), st.floats(-3600, 3600))
def test_a_ticket_expires_when_it_says_and_never_without_a_date(expires: int, after_s: float) -> None:
    ticket: Ticket = cut(found("lab"), expires=expires)
    assert ticket.has_expired(expires + after_s) == (expires + after_s > expires)
    assert not cut(found("lab")).has_expired(2.0**62)
