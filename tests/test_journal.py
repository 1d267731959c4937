"""The journal: what is told is read again, and a disk or a file gone bad is one clear error."""

import os
import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waggledance.errors import MissingError, StorageError
from waggledance.events import (
    Entry,
    Evaluated,
    Event,
    Failed,
    Finished,
    Generated,
    Learned,
    Met,
    Parted,
    Resumed,
    Said,
    Sampled,
    Saved,
    Shared,
    Started,
    Stuck,
    Unsaved,
    Used,
    Verified,
)
from waggledance.journal import Journal, JournalReader, mend
from waggledance.rollout import Author

BEE = Author("bee")
EVENTS: list[Event] = [
    Started("tiny", 852_352, ("easy:gcd", "arithmetic"), "fixed(4, 4)", 100, 8, 2**63 - 1, "0.1.0"),
    Evaluated(0.015625, {"easy:gcd": 0.0, "arithmetic": 1 / 3}, 64, 1.25),
    Generated(4, 32, 305, 0.1),
    Verified(0.09375, 2, 1e-05, {"easy:gcd": 0.125, "arithmetic": 0.0}),
    Said(BEE, "arithmetic", "1 + 1 = ?\n", "<answer>\x1b[2J\x00 \u2028\u202e😀</answer>", 1.0),
    Shared(4, 5120),
    Met(Author("ant"), "tiny", 852_352, "0.1.0", {"easy:gcd": "0a1b"}),
    Parted(Author("ant"), "lost"),
    Sampled(4, 3, {"ant": 2, "cicada": 1}, 17, 7, {"digest": 2}, {"ant": {"digest": 2}}, 9, 1, 0.25),
    Learned(0.125, 3, 96, -1e-09, 1e30, 0.0, 0.5, 2.0),
    Used(400_000_000, 500_000_000, 12.5),
    Saved("runs/bee/model"),
    Resumed(70, 3, 0.5, ("000000070: manifest.json is damaged",)),
    Unsaved("disk full: no room for a checkpoint"),
    Stuck("generate", "policy/hf.py:85 (_step)", 300.5),
    Finished("rounds done"),
    Failed("the disk is full", 7),
]
assert {type(event) for event in EVENTS} == set(Event.__args__)


def ticking(start: int = 0) -> Iterator[float]:
    return (float(second) for second in count(start))


def journal_at(path: Path | None = None) -> Journal:
    return Journal(BEE, ticking().__next__, path)


def read(path: Path) -> list[Entry]:
    reader = JournalReader(path)
    try:
        return list(reader.entries())
    finally:
        reader.close()


def write(journal: Journal) -> None:
    for number, event in enumerate(EVENTS):
        journal.round = number
        journal.tell(event)
    journal.close()


def test_every_event_reads_back_the_same_on_disk_as_in_memory(tmp_path: Path) -> None:
    in_memory, on_disk = journal_at(), journal_at(tmp_path / "j")
    write(in_memory)
    write(on_disk)
    assert read(tmp_path / "j") == in_memory.entries
    assert [entry.event for entry in in_memory.entries] == EVENTS
    assert [(entry.at, entry.round) for entry in in_memory.entries] == [
        (float(n), n) for n in range(len(EVENTS))
    ]


def test_the_same_entries_are_the_same_bytes_one_line_each(tmp_path: Path) -> None:
    for name in ("one", "other"):
        write(journal_at(tmp_path / name))
    content = (tmp_path / "one").read_bytes()
    assert content == (tmp_path / "other").read_bytes()
    assert content.count(b"\n") == len(EVENTS)
    assert len(content.decode().splitlines()) >= len(EVENTS)


@given(
    text=st.text(st.characters(exclude_categories=["Cs"])),
    number=st.floats(allow_nan=False, allow_infinity=False),
)
def test_any_text_and_number_reads_back_the_same(text: str, number: float) -> None:
    journal = journal_at()
    journal.tell(Said(Author(text), text, text, text, number))
    line = msgspec.json.encode(journal.entries[0])
    assert b"\n" not in line
    assert msgspec.json.decode(line, type=Entry) == journal.entries[0]


def test_a_line_can_be_read_as_soon_as_it_is_told(tmp_path: Path) -> None:
    journal, reader = journal_at(tmp_path / "j"), JournalReader(tmp_path / "j")
    for event in EVENTS:
        journal.tell(event)
        assert [entry.event for entry in reader.entries()] == [event]
        assert list(reader.entries()) == []
    journal.close()
    reader.close()


def test_a_reader_waits_for_a_file_that_is_not_there_yet(tmp_path: Path) -> None:
    reader = JournalReader(tmp_path / "j")
    assert list(reader.entries()) == []
    write(journal_at(tmp_path / "j"))
    assert len(list(reader.entries())) == len(EVENTS)
    reader.close()


def test_a_reader_waits_for_the_rest_of_a_line_wherever_it_was_cut(tmp_path: Path) -> None:
    write(journal_at(tmp_path / "whole"))
    content = (tmp_path / "whole").read_bytes()
    for cut in range(0, len(content), 7):
        growing = tmp_path / "growing"
        growing.write_bytes(content[:cut])
        reader = JournalReader(growing)
        before = list(reader.entries())
        with growing.open("ab") as file:
            file.write(content[cut:])
        assert [entry.event for entry in [*before, *reader.entries()]] == EVENTS
        assert len(before) == content[:cut].count(b"\n")
        reader.close()


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"\xff\xfe",
        b'{"at":1,"node":"\xff","round":1,"event":{"type":"saved","path":"x"}}',
        b'{"at":1,"node":"a","round":1,"event":{"type":"sung"}}',
        b'{"at":1,"node":"a","round":1,"event":{"type":"saved"}}',
        b'{"at":null,"node":"a","round":1,"event":{"type":"saved","path":"x"}}',
        b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"at":1,"node":"a","round":1,"event":{"type":"saved","path":"x"}}{}',
    ],
    ids=lambda line: repr(line[:20]),
)
def test_a_corrupted_line_is_one_clear_error_that_names_it(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "j"
    journal = journal_at(path)
    journal.tell(Finished("rounds done"))
    journal.close()
    path.write_bytes(path.read_bytes() + line + b"\n")
    reader = JournalReader(path)
    entries = reader.entries()
    assert next(entries).event == Finished("rounds done")
    with pytest.raises(MissingError, match=r"j is no journal of this version: line 2: .") as refused:
        next(entries)
    assert "\n" not in str(refused.value)
    reader.close()


def test_a_folder_is_no_journal(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match=r"^cannot read .*: Is a directory$"):
        read(tmp_path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_a_storage_error_and_closing_is_quiet() -> None:
    journal = journal_at(Path("/dev/full"))
    with pytest.raises(
        StorageError, match="journal /dev/full cannot grow: No space left on device; free some"
    ):
        journal.tell(Finished("rounds done"))
    journal.close()
    assert StorageError.exit_code == 7


def told_until_full(journal: Journal) -> int:
    for number in range(10_000):
        try:
            journal.tell(Saved(str(number)))
        except StorageError:
            return number
    raise AssertionError("it never was full")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_disk_that_fills_keeps_the_whole_lines(tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", tmp_path], check=True)
    try:
        journal = journal_at(tmp_path / "j")
        told = told_until_full(journal)
        assert [entry.event for entry in read(tmp_path / "j")] == [Saved(str(n)) for n in range(told)]
        assert told > 100
        journal.close()
    finally:
        subprocess.run(["umount", tmp_path], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_patient_journal_waits_for_room_and_then_has_every_line(tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", tmp_path], check=True)
    try:
        (tmp_path / "filler").write_bytes(bytes(40_000))
        journal = Journal(BEE, ticking().__next__, tmp_path / "j", patience_bytes=1_000_000)
        for number in range(500):
            journal.tell(Saved(str(number)))
        assert journal.trouble
        assert "cannot grow: No space left on device; free some space" in journal.trouble
        (tmp_path / "filler").unlink()
        journal.tell(Saved("500"))
        assert journal.trouble is None
        assert [entry.event for entry in read(tmp_path / "j")] == [
            Saved(str(number)) for number in range(501)
        ]
        journal.close()
    finally:
        subprocess.run(["umount", tmp_path], check=True)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_patience_is_bounded() -> None:
    journal = Journal(BEE, ticking().__next__, Path("/dev/full"), patience_bytes=1000)
    for number in range(100):
        journal.tell(Saved(str(number)))
    assert journal.told == 100
    assert 900 < len(journal._waiting) <= 1000  # pyright: ignore[reportPrivateUsage]
    journal.close()


def test_a_torn_last_line_is_cut_off_wherever_it_was_torn(tmp_path: Path) -> None:
    path = tmp_path / "j"
    mend(path)
    assert not path.exists()
    write(journal_at(path))
    content = path.read_bytes()
    for cut in range(0, len(content), 11):
        path.write_bytes(content[:cut])
        mend(path)
        whole = content[:cut].count(b"\n")
        journal = journal_at(path)
        journal.tell(Finished("stopped"))
        journal.close()
        assert [entry.event for entry in read(path)] == [*EVENTS[:whole], Finished("stopped")]
