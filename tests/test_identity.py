"""Identities: who signs, in a file for its owner's eyes, with sessions that only grow."""

import os
import stat
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waggledance.errors import MissingError, StorageError
from waggledance.rollout import Author, name_of
from waggledance.swarm.identity import (
    KEY,
    SESSION,
    author_of,
    fingerprint,
    fingerprint_in,
    make_identity,
    open_identity,
    write_secret,
)
from waggledance.swarm.wire import is_author

NOW = 1_800_000_000.0
HOUR_S = 3600.0
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True)


@given(names, st.binary(min_size=32, max_size=32))
def test_an_author_is_a_name_and_a_fingerprint_that_fit_on_the_wire(name: str, public: bytes) -> None:
    author = author_of(name, public)
    assert is_author(author)
    assert name_of(author) == name
    assert fingerprint_in(author) == fingerprint(public)
    assert len(fingerprint(public)) == 16


def test_one_name_and_two_keys_are_two_authors() -> None:
    assert author_of("ant", bytes(32)) != author_of("ant", bytes(31) + b"\x01")


def test_the_key_is_kept_and_nobody_else_may_read_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        first = open_identity(tmp_path, "ant", NOW)
    finally:
        os.umask(before)
    again = open_identity(tmp_path, "ant", NOW)
    assert (first.author, first.public) == (again.author, again.public)
    assert open_identity(tmp_path, "bee", NOW).public == first.public, "a name is only a name"
    assert {path.name for path in tmp_path.iterdir()} == {KEY, SESSION}
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


def test_two_folders_are_two_authors(tmp_path: Path) -> None:
    ant, other = (open_identity(tmp_path / folder, "ant", NOW) for folder in ("one", "two"))
    assert ant.author != other.author


@settings(max_examples=25)
@given(st.lists(st.floats(-1e12, 1e12), min_size=2, max_size=12))
def test_sessions_only_grow_whatever_the_clock_does(
    tmp_path_factory: pytest.TempPathFactory, clock: list[float]
) -> None:
    folder = tmp_path_factory.mktemp("run")
    sessions = [open_identity(folder, "ant", now).session for now in clock]
    assert all(before < after for before, after in pairwise(sessions))
    last = make_identity("ant", bytes(32), sessions[-1])
    assert 0 < last.next_sequence() < 2**63


def test_a_folder_put_back_to_an_older_state_repeats_nothing(tmp_path: Path) -> None:
    open_identity(tmp_path, "ant", NOW)
    old = (tmp_path / SESSION).read_bytes()
    used = open_identity(tmp_path, "ant", NOW + HOUR_S)
    (tmp_path / SESSION).write_bytes(old)
    assert open_identity(tmp_path, "ant", NOW + HOUR_S + 1).session > used.session


@pytest.mark.parametrize("content", [b"", b"x", b"-7", b"\xff", b"9" * 5000, str(2**31).encode()])
def test_without_a_readable_session_the_clock_decides(content: bytes, tmp_path: Path) -> None:
    open_identity(tmp_path, "ant", NOW)
    (tmp_path / SESSION).write_bytes(content)
    assert open_identity(tmp_path, "ant", NOW + 5).session == int(NOW) + 5


def test_no_message_of_a_session_has_a_number_twice_nor_one_of_the_next(tmp_path: Path) -> None:
    first, second = (open_identity(tmp_path, "ant", NOW) for _ in range(2))
    numbers = [first.next_sequence() for _ in range(1000)]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] < second.next_sequence()


@pytest.mark.parametrize(
    "content",
    [b"", b"abc", b"zz" * 32, b"ab" * 31, b"ab" * 33, b"\xff" * 64, os.urandom(32), b"ab" * 31 + b"a\n"],
    ids=range(8),
)
def test_a_damaged_identity_is_one_line_and_is_left(content: bytes, tmp_path: Path) -> None:
    (tmp_path / KEY).write_bytes(content)
    with pytest.raises(MissingError, match="64 hexadecimal digits are; put the right file back") as caught:
        open_identity(tmp_path, "ant", NOW)
    assert "\n" not in str(caught.value)
    assert (tmp_path / KEY).read_bytes() == content
    assert not (tmp_path / SESSION).exists()


def test_an_identity_that_cannot_be_read_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / KEY).symlink_to("nowhere")
    with pytest.raises(MissingError, match="cannot read the identity"):
        open_identity(tmp_path, "ant", NOW)
    assert (tmp_path / KEY).is_symlink()


@pytest.mark.parametrize("place", ["file/secret", "file/below/secret", "l" * 300, "folder"])
def test_a_secret_that_cannot_be_written_is_one_line_and_leaves_nothing(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageError, match=r"cannot write .*; free some space or name another folder"):
        write_secret(tmp_path / place, b"secret")
    assert {path.name for path in tmp_path.rglob("*")} == {"file", "folder"}


def test_a_secret_replaces_one_that_others_could_read(tmp_path: Path) -> None:
    open_to_all = tmp_path / "secret"
    open_to_all.write_text("old")
    open_to_all.chmod(0o666)
    write_secret(open_to_all, b"new")
    assert open_to_all.read_bytes() == b"new"
    assert stat.S_IMODE(open_to_all.stat().st_mode) == 0o600


def test_names_with_dots_keep_their_fingerprint() -> None:
    assert fingerprint_in(Author("my.laptop.k3v9w2qab4nmzr7p")) == "k3v9w2qab4nmzr7p"
