"""A bank: the tasks of an experiment, made beforehand and kept in one file.

Every source gives its first tasks and its first held-out ones; nodes draw among these. So an experiment needs
no generator while it runs, costs no node its time, and can be run where ReasoningGYM is not installed.
"""

import gzip
import zlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from waggledance.errors import MissingError, TaskError
from waggledance.seams import Pair, Source, Verdict
from waggledance.task import Digest, SourceName, Task
from waggledance.tasks import SETS
from waggledance.verify import RULES
from waggledance.verify import verify as rewards_of

REMEMBERED = 500_000
"""Rewards kept: when they are so many, memory starts anew."""


class Slip(msgspec.Struct, frozen=True, array_like=True):
    """A task without its name."""

    question: str
    rule: str
    truth: str
    partial: bool


class Shelf(msgspec.Struct, frozen=True):
    """One source's tasks."""

    name: SourceName
    digest: Digest
    trained: tuple[Slip, ...]
    heldout: tuple[Slip, ...]


class Bank(msgspec.Struct, frozen=True):
    shelves: tuple[Shelf, ...]

    def named(self, names: Sequence[SourceName]) -> "list[BankSource]":
        by_name = {shelf.name: shelf for shelf in self.shelves}
        for name in names:
            if name not in by_name:
                raise TaskError(f"the bank has no tasks of {name}; prepare it again from this file")
        return [BankSource(by_name[name]) for name in names]


class BankSource:
    """A source whose tasks lie ready."""

    def __init__(self, shelf: Shelf) -> None:
        self.name = shelf.name
        self.digest = shelf.digest
        self.size = len(shelf.trained)
        self._tasks = [
            Task(shelf.name, index, slip.question, slip.rule, slip.truth, slip.partial)
            for index, slip in enumerate((*shelf.trained, *shelf.heldout))
        ]

    def task(self, index: int) -> Task:
        """The held-out ones over and over, as with any source that has few."""
        if index < 0:
            raise TaskError(f"{self.name} has no task {index}: indices start at 0")
        past = index - self.size
        return self._tasks[index if past < 0 else self.size + past % (len(self._tasks) - self.size)]


class Remembering:
    """Verifies in this process by our own rules, and each text on a task once: what a node's peers verify is
    the very text that it verified itself."""

    def __init__(self) -> None:
        self._rewards: dict[tuple[SourceName, int, str], float] = {}

    def verify(self, pairs: Sequence[Pair]) -> list[Verdict]:
        return [tuple(self._reward(task, text) for text in texts) for task, texts in pairs]

    def _reward(self, task: Task, text: str) -> float:
        key = task.source, task.index, text
        if key not in self._rewards:
            if len(self._rewards) >= REMEMBERED:
                self._rewards.clear()
            [self._rewards[key]] = rewards_of(task, [text])
        return self._rewards[key]

    def close(self) -> None:
        """Holds nothing that must be given back."""


def names_of(words: Sequence[str]) -> list[SourceName]:
    """The sources that the words of a configuration name, as `tasks.open_sources` calls them."""
    singles = [single for word in words for single in SETS.get(word, (word,))]
    return [SourceName(_file_name(single)) for single in dict.fromkeys(singles)]


def _file_name(word: str) -> str:
    kind, _, path = word.partition(":")
    return f"jsonl:{Path(path).name}" if kind == "jsonl" else word


def make_bank(sources: Sequence[Source], trained: int, heldout: int) -> Bank:
    return Bank(tuple(_shelf(source, trained, heldout) for source in sources))


def _shelf(source: Source, trained: int, heldout: int) -> Shelf:
    count = min(trained, source.size)
    return Shelf(
        name=source.name,
        digest=source.digest,
        trained=tuple(_slip(source.task(index)) for index in range(count)),
        heldout=tuple(_slip(source.task(source.size + place)) for place in range(heldout)),
    )


def _slip(task: Task) -> Slip:
    if task.rule not in RULES:
        raise TaskError(f"{task.source} is not judged by a rule of this package; take it out of the lab file")
    return Slip(task.question, task.rule, task.truth, task.partial)


def write_bank(bank: Bank) -> bytes:
    return gzip.compress(msgspec.json.encode(bank), mtime=0)


def read_bank(path: Path) -> Bank:
    try:
        return msgspec.json.decode(gzip.decompress(path.read_bytes()), type=Bank)
    except (msgspec.DecodeError, gzip.BadGzipFile, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise MissingError(
            f"{path} is no bank of tasks: {error}; make it with waggle lab FILE --prepare"
        ) from error
    except OSError as error:
        raise MissingError(f"cannot read {path}: {error.strerror}") from error
