"""The replay window: each number of each author once, in whatever order, over restarts, in bounded memory."""

import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waggledance.swarm import window as window_module
from waggledance.swarm.window import LIMIT_AUTHORS, SPAN, Windows

near = st.integers(0, 3 * SPAN)
far = st.one_of(near, st.integers(0, 2**63 - 1))
arrivals = st.lists(st.tuples(st.sampled_from("abc"), far), max_size=200)


class Model:
    """A plain set of all there was, which forgets nothing."""

    def __init__(self) -> None:
        self.seen: dict[str, set[int]] = {}

    def admit(self, author: str, sequence: int) -> bool:
        seen = self.seen.setdefault(author, set())
        too_old = bool(seen) and sequence <= max(seen) - SPAN
        new = sequence not in seen and not too_old
        if new:
            seen.add(sequence)
        return new


@settings(max_examples=300)
@given(arrivals)
def test_it_admits_what_a_set_of_all_would(arrivals: list[tuple[str, int]]) -> None:
    windows, model = Windows(), Model()
    for author, sequence in arrivals:
        assert windows.admit(author, sequence) == model.admit(author, sequence)


@settings(max_examples=50)
@given(st.lists(arrivals, min_size=2, max_size=5))
def test_it_does_so_over_restarts(
    tmp_path_factory: pytest.TempPathFactory, runs: list[list[tuple[str, int]]]
) -> None:
    file, model = tmp_path_factory.mktemp("run") / "heard", Model()
    for run in runs:
        windows = Windows(file)
        for number, (author, sequence) in enumerate(run):
            assert windows.admit(author, sequence) == model.admit(author, sequence)
            if number % 3 == 0:
                windows.save()
        windows.save()


@given(st.permutations(range(40)), st.integers(0, 2**62))
def test_messages_may_overtake_each_other(order: list[int], first: int) -> None:
    windows = Windows()
    assert all(windows.admit("ant", first + number) for number in order)
    assert not any(windows.admit("ant", first + number) for number in order)


def test_what_is_older_than_the_span_is_refused_even_if_it_never_came() -> None:
    windows = Windows()
    assert windows.admit("ant", SPAN)
    assert windows.admit("ant", 1)
    assert not windows.admit("ant", 0)


def test_a_new_session_ends_the_old_one_s_numbers() -> None:
    windows = Windows()
    assert windows.admit("ant", 1 << 32)
    assert windows.admit("ant", 2 << 32)
    assert not windows.admit("ant", (1 << 32) + 1)


def test_authors_are_bounded_and_the_one_heard_longest_ago_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window_module, "LIMIT_AUTHORS", 10)
    windows = Windows(tmp_path / "heard")
    for number in range(10):
        assert windows.admit(f"author {number}", 1)
    assert windows.admit("author 0", 2)
    assert windows.admit("author 10", 1)
    windows.save()
    again = Windows(tmp_path / "heard")
    for kept in (windows, again):
        assert not kept.admit("author 0", 2)
        assert not kept.admit("author 2", 1)
    assert again.admit("author 1", 1), "who is forgotten starts anew"


def test_the_file_of_a_crowd_is_small(tmp_path: Path) -> None:
    windows = Windows(tmp_path / "heard")
    for number in range(LIMIT_AUTHORS + 100):
        windows.admit(f"{number:016d}", number << 32)
    windows.save()
    assert (tmp_path / "heard").stat().st_size < 1_000_000
    rows = msgspec.msgpack.decode((tmp_path / "heard").read_bytes())
    assert len(rows) == LIMIT_AUTHORS


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_a_damaged_file_counts_as_nothing_heard(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    file = tmp_path_factory.mktemp("run") / "heard"
    file.write_bytes(content)
    assert Windows(file).admit("ant", 7)


@pytest.mark.parametrize(
    "content",
    [
        b"\x81\xa3\xff\xfe\xfd\x92\x01\xc4\x00",
        b"\x91" * 100_000,
        msgspec.msgpack.encode({"ant": [-1, b""]}),
        msgspec.msgpack.encode({"ant": [2**64 - 1, b""]}),
        msgspec.msgpack.encode({"ant": [1]}),
    ],
    ids=["not UTF-8", "deep", "negative", "too large", "short"],
)
def test_bytes_that_a_decoder_chokes_on_count_as_nothing_heard(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "heard").write_bytes(content)
    assert Windows(tmp_path / "heard").admit("ant", 7)


def test_seen_bits_beyond_the_span_are_no_more_than_the_span(tmp_path: Path) -> None:
    row = msgspec.msgpack.encode({"ant": [5000, b"\xff" * 100_000]})
    (tmp_path / "heard").write_bytes(row)
    windows = Windows(tmp_path / "heard")
    assert not windows.admit("ant", 4999)
    assert windows.admit("ant", 5001)
    windows.save()
    assert (tmp_path / "heard").stat().st_size < 1000


def test_a_disk_that_takes_nothing_leaves_the_old_file_and_is_tried_again(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    windows = Windows(folder / "heard")
    windows.admit("ant", 1)
    windows.save()
    old = (folder / "heard").read_bytes()
    windows.admit("ant", 2)
    (folder / ".heard.new").mkdir()  # what is written beside finds no place
    windows.save()
    assert (folder / "heard").read_bytes() == old
    (folder / ".heard.new").rmdir()
    windows.save()
    assert not Windows(folder / "heard").admit("ant", 2)


def test_a_save_writes_what_is_new_and_now_and_then_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window_module, "ADDED_LIMIT_BYTES", 1000)
    windows = Windows(tmp_path / "heard")
    wholes: set[int] = set()
    for number in range(200):
        assert windows.admit("ant", number)
        windows.save()
        assert (tmp_path / "heard.added").stat().st_size < 1100
        wholes.add((tmp_path / "heard").stat().st_ino)
    assert len(wholes) < 20
    again = Windows(tmp_path / "heard")
    assert not any(again.admit("ant", number) for number in range(200))


@pytest.mark.parametrize("kept", range(0, 40, 3))
def test_a_kill_in_the_middle_of_a_save_costs_that_save_alone(kept: int, tmp_path: Path) -> None:
    file, added = tmp_path / "heard", tmp_path / "heard.added"
    windows = Windows(file)
    for number in range(6):
        windows.admit("ant", number)
        windows.save()
    whole = added.read_bytes()
    record = len(whole) // 5
    added.write_bytes(whole[:kept])
    again = Windows(file)
    for number in range(6):
        assert again.admit("ant", number) == (number > kept // record)
    again.save()
    third = Windows(file)
    assert not any(third.admit("ant", number) for number in range(6))


def test_a_full_disk_is_tried_again_with_all_there_is(tmp_path: Path) -> None:
    windows = Windows(tmp_path / "heard")
    windows.admit("ant", 1)
    windows.save()
    (tmp_path / "heard.added").unlink()
    (tmp_path / "heard.added").mkdir()  # nothing can be added
    windows.admit("ant", 2)
    windows.save()
    windows.admit("ant", 3)
    (tmp_path / "heard.added").rmdir()
    windows.save()
    again = Windows(tmp_path / "heard")
    assert not any(again.admit("ant", number) for number in (1, 2, 3))


@settings(max_examples=200)
@given(st.binary(max_size=100))
def test_a_damaged_second_file_keeps_the_first(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    file = tmp_path_factory.mktemp("run") / "heard"
    windows = Windows(file)
    windows.admit("ant", 7)
    windows.save()
    (file.parent / "heard.added").write_bytes(content)
    assert not Windows(file).admit("ant", 7)


def test_what_has_not_changed_is_not_written(tmp_path: Path) -> None:
    windows = Windows(tmp_path / "heard")
    windows.save()
    assert not (tmp_path / "heard").exists()
    windows.admit("ant", 1)
    windows.save()
    os.utime(tmp_path / "heard", (1, 1))
    assert not windows.admit("ant", 1)
    windows.save()
    assert (tmp_path / "heard").stat().st_mtime == 1
