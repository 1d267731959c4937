"""What outlives a kill: whole checkpoints, and a record of every round since, in one folder.

A whole checkpoint is a folder named after its round: `state.msgpack`, `tensors.safetensors`, and a
`manifest.json` with their digests, written beside its place and renamed. Its `rounds` file grows by one
record a round; a torn last record counts as none. Two checkpoints are kept; from the older one its records,
then the newer one's, lead to the same place. Nothing here imports torch unless there are tensors.
"""

import errno
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from waggledance.errors import ModelError, StorageError
from waggledance.rollout import Group, ScoredGroup

FORMAT = 1
"""Raised when an older version could not read what is written."""
KEPT = 2
STATE, TENSORS, MANIFEST, ROUNDS = "state.msgpack", "tensors.safetensors", "manifest.json", "rounds"
EXPERIENCE = "experience"
"""Rounds of checkpoints that are gone, a file each."""
DIGITS = 9
"""Of a folder's name, so that names sort as rounds do."""
DIGEST_BYTES = 16
LENGTH_BYTES = 8
RECORD_LIMIT_BYTES = 1 << 30
SYNC_EVERY_S = 1.0
"""A kill loses nothing that was written; only a power cut asks for more, and that costs time."""


class Record(msgspec.Struct, frozen=True):
    """What a round came to: enough to learn it again without generating, hearing or verifying anything."""

    round: int
    batch: tuple[ScoredGroup, ...]
    heard: tuple[Group, ...]
    waiting: tuple[int, ...]
    """Marks of what was left in the pool."""
    parts: dict[str, bytes]


class Belongs(msgspec.Struct, frozen=True):
    """What a checkpoint belongs to."""

    model: str
    learner: str


class FileFacts(msgspec.Struct, frozen=True):
    bytes: int
    digest: str


class Manifest(msgspec.Struct, frozen=True):
    format: int
    round: int
    belongs: Belongs
    files: dict[str, FileFacts]


class _FormatOnly(msgspec.Struct, frozen=True):
    format: int


@dataclass(frozen=True, slots=True)
class Found:
    """The newest state that can be had: a whole checkpoint, and the rounds after it."""

    round: int
    belongs: Belongs
    parts: Mapping[str, bytes]
    tensors: Mapping[str, Any]
    records: tuple[Record, ...]
    damaged: tuple[str, ...]
    """Checkpoints that were passed over, and why."""


class Checkpoints:
    """The checkpoints of one run, which one process at a time writes."""

    def __init__(
        self, folder: Path, clock: Callable[[], float] = time.monotonic, experience_bytes: int = 0
    ) -> None:
        """`experience_bytes`: how much of the rounds of checkpoints that are gone is put by."""
        self._folder = folder
        self._experience_bytes = experience_bytes
        self._clock = clock
        self._rounds: BinaryIO | None = None
        self._synced = -SYNC_EVERY_S
        self._damaged: set[str] = set()

    def find(self) -> Found | None:
        """None where there is nothing yet. A newer version's checkpoint, or nothing but damaged ones, is an
        error: what is there must not be overwritten unasked."""
        damaged: list[str] = []
        for place in reversed(self._places()):
            reason = _damage(place)
            if reason is not None:
                damaged.append(f"{place.name}: {reason}")
                self._damaged.add(place.name)
                continue
            manifest = msgspec.json.decode((place / MANIFEST).read_bytes(), type=Manifest)
            return Found(
                round=manifest.round,
                belongs=manifest.belongs,
                parts=msgspec.msgpack.decode((place / STATE).read_bytes(), type=dict[str, bytes]),
                tensors=_tensors_in(place),
                records=tuple(self._records_after(manifest.round)),
                damaged=tuple(damaged),
            )
        if damaged:
            raise StorageError(
                f"no checkpoint in {self._folder} can be read ({damaged[0]}); "
                "remove that folder to begin at round 0, or name another with --dir"
            )
        return None

    def write_whole(
        self, round_number: int, belongs: Belongs, parts: Mapping[str, bytes], tensors: Mapping[str, Any]
    ) -> None:
        """From here on this is what a restart begins with. A full disk leaves what was there."""
        place = self._folder / f"{round_number:0{DIGITS}}"
        beside = self._folder / f".{place.name}.new"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._clear_remains()
            self._make_room(place)
            beside.mkdir()
            _write_synced(beside / STATE, msgspec.msgpack.encode(dict(parts)))
            if tensors:
                _write_tensors(beside / TENSORS, tensors)
            files = {file.name: _facts(file) for file in sorted(beside.iterdir())}
            manifest = Manifest(FORMAT, round_number, belongs, files)
            _write_synced(beside / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)))
            (beside / ROUNDS).touch()
            _sync_folder(beside)
            beside.rename(place)
            _sync_folder(self._folder)
            self._damaged.discard(place.name)
        except OSError as error:
            with suppress(OSError):
                shutil.rmtree(beside, ignore_errors=True)
            raise _unwritable(place, error) from error
        self._open_rounds(place)
        self._forget_old()

    def record(self, record: Record) -> None:
        """Appended to the newest checkpoint's rounds."""
        assert self._rounds is not None, "a record follows a whole checkpoint"
        start = self._rounds.tell()
        try:
            _write_all(self._rounds, _framed(msgspec.msgpack.encode(record)))
            if self._clock() - self._synced >= SYNC_EVERY_S:
                os.fsync(self._rounds.fileno())
                self._synced = self._clock()
        except OSError as error:
            self._undo(start)
            raise _unwritable(self._folder, error) from error

    def resume(self) -> None:
        """Records go on after the last whole one; what is torn behind it is cut off."""
        place = self._places()[-1]
        self._open_rounds(place)
        assert self._rounds is not None
        content = (place / ROUNDS).read_bytes()
        length = sum(LENGTH_BYTES + DIGEST_BYTES + len(body) for body in _bodies(content))
        self._rounds.truncate(length)
        self._rounds.seek(length)

    def close(self) -> None:
        if self._rounds is not None:
            with suppress(OSError):
                self._rounds.close()
            self._rounds = None

    def _places(self) -> list[Path]:
        """Oldest first."""
        if not self._folder.is_dir():
            return []
        return sorted(path for path in self._folder.iterdir() if path.name.isdecimal() and path.is_dir())

    def _records_after(self, round_number: int) -> Iterator[Record]:
        for place in self._places():
            if int(place.name) < round_number:
                continue
            with suppress(OSError, msgspec.DecodeError):
                for body in _bodies((place / ROUNDS).read_bytes()):
                    record = msgspec.msgpack.decode(body, type=Record)
                    if record.round == round_number + 1:
                        round_number = record.round
                        yield record

    def _make_room(self, place: Path) -> None:
        """What stands in the place of a new checkpoint is of the same round: damaged, or written twice."""
        if place.exists():
            old = self._folder / f".{place.name}.old"
            place.rename(old)

    def _clear_remains(self) -> None:
        """Of a process that was killed while it wrote or removed."""
        for remains in self._folder.glob(".*"):
            shutil.rmtree(remains, ignore_errors=True)

    def _open_rounds(self, place: Path) -> None:
        self.close()
        try:
            # Unbuffered: what did not go to the disk must not wait here to go there later.
            self._rounds = (place / ROUNDS).open("r+b", buffering=0)
        except OSError as error:
            raise _unwritable(place, error) from error

    def _undo(self, start: int) -> None:
        assert self._rounds is not None
        with suppress(OSError):
            self._rounds.truncate(start)
            self._rounds.seek(start)

    def _put_by(self, place: Path) -> None:
        """What a checkpoint that goes had recorded is experience; of too much the oldest goes."""
        put_by = self._folder / EXPERIENCE
        if not self._experience_bytes or not (place / ROUNDS).exists():
            return
        put_by.mkdir(exist_ok=True)
        (place / ROUNDS).rename(put_by / place.name)
        files = sorted(put_by.iterdir())
        sizes = [file.stat().st_size for file in files]
        while sum(sizes) > self._experience_bytes:
            sizes.pop(0)
            files.pop(0).unlink()

    def _forget_old(self) -> None:
        """Renamed first: what is half removed must not look like a checkpoint."""
        with suppress(OSError):
            sound = [place.name for place in self._places() if place.name not in self._damaged]
            for place in self._places():
                if place.name in sound[-KEPT:]:
                    continue
                self._put_by(place)
                gone = place.with_name(f".{place.name}.old")
                place.rename(gone)
                shutil.rmtree(gone, ignore_errors=True)
            for remains in self._folder.glob(".*.old"):
                shutil.rmtree(remains, ignore_errors=True)


def experience(folder: Path) -> Iterator[Record]:
    """All rounds that were recorded and are still there, oldest first."""
    files = [
        *sorted((folder / EXPERIENCE).glob("*")),
        *(place / ROUNDS for place in sorted(folder.glob("[0-9]*"))),
    ]
    newest = 0
    for file in files:
        with suppress(OSError, msgspec.DecodeError):
            for body in _bodies(file.read_bytes()):
                record = msgspec.msgpack.decode(body, type=Record)
                if record.round > newest:
                    newest = record.round
                    yield record


def _damage(place: Path) -> str | None:
    """What is wrong with a checkpoint, if anything is."""
    try:
        content = (place / MANIFEST).read_bytes()
        written_by = msgspec.json.decode(content, type=_FormatOnly).format
        if written_by > FORMAT:
            raise ModelError(
                f"{place} was written by a newer version (format {written_by}, this one reads {FORMAT}); "
                "update waggledance, or name another folder with --dir"
            )
        manifest = msgspec.json.decode(content, type=Manifest)
    except OSError as error:
        return f"{MANIFEST} cannot be read: {error.strerror}"
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return f"{MANIFEST} is damaged: {error}"
    for name, facts in manifest.files.items():
        try:
            if _facts(place / name) != facts:
                return f"{name} is not what was written"
        except OSError as error:
            return f"{name} cannot be read: {error.strerror}"
    return None


def _facts(file: Path) -> FileFacts:
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, lambda: hashlib.blake2b(digest_size=DIGEST_BYTES))
        return FileFacts(os.fstat(opened.fileno()).st_size, digest.hexdigest())


def _framed(body: bytes) -> bytes:
    digest = hashlib.blake2b(body, digest_size=DIGEST_BYTES).digest()
    return len(body).to_bytes(LENGTH_BYTES, "big") + digest + body


def _bodies(content: bytes) -> Iterator[bytes]:
    """Whole records, up to the first that is not."""
    at = 0
    while at + LENGTH_BYTES + DIGEST_BYTES <= len(content):
        length = int.from_bytes(content[at : at + LENGTH_BYTES], "big")
        start = at + LENGTH_BYTES + DIGEST_BYTES
        body = content[start : start + length] if length <= RECORD_LIMIT_BYTES else b""
        whole = len(body) == length
        if not whole or _framed(body)[: start - at] != content[at:start]:
            return
        yield body
        at = start + length


def _write_all(file: BinaryIO, content: bytes) -> None:
    """An unbuffered file may take a part of it only."""
    left = memoryview(content)
    while left:
        left = left[file.write(left) :]


def _write_synced(file: Path, content: bytes) -> None:
    with file.open("wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())


def _write_tensors(file: Path, tensors: Mapping[str, Any]) -> None:
    from waggledance.checkpoint import write_tensors

    write_tensors(file, tensors)
    with file.open("rb") as opened:
        os.fsync(opened.fileno())


def _tensors_in(place: Path) -> Mapping[str, Any]:
    if not (place / TENSORS).exists():
        return {}
    from waggledance.checkpoint import read_tensors

    return read_tensors(place / TENSORS)


def _sync_folder(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _unwritable(place: Path, error: OSError) -> StorageError:
    if error.errno == errno.ENOSPC:
        return StorageError(f"disk full: no room for a checkpoint at {place}; free some space")
    return StorageError(f"cannot write a checkpoint to {place}: {error.strerror}; name another with --dir")
