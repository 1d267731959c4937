"""A user's own tasks: a file with one `{"question": …, "answer": …, "rule": …}` a line.

The rule may be left out and is then `text`. A tenth of the questions, at least one, is held out: those
whose hash is lowest, so that the order of the lines is all one and a new line moves one across at most.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec

from waggledance.errors import MissingError, TaskError, nearest
from waggledance.task import Digest, SourceName, Task
from waggledance.tasks.split import HELD_OUT_ONE_IN, digest_of, question_hash
from waggledance.verify import RULES, right_answer, verify


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    question: str
    answer: str
    rule: str = "text"


class Jsonl:
    """Train tasks in the file's order, then the held-out ones, over and over.

    The name is the file's and not its folder's, so that two nodes that keep it in different places agree;
    the digest covers every line.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = SourceName(f"jsonl:{path.name}")
        tasks = [
            Task(self.name, 0, line.question, line.rule, line.answer) for line in _checked(path, _lines(path))
        ]
        held_out = _held_out({task.question for task in tasks})
        self._trained = [task for task in tasks if task.question not in held_out]
        self._held_out = [task for task in tasks if task.question in held_out]
        if not held_out or not self._trained:
            raise TaskError(
                f"{path}: two different questions are the least: one to train on, one to hold out"
            )
        self.digest: Digest = digest_of(self._trained + self._held_out)

    @property
    def size(self) -> int:
        return len(self._trained)

    def task(self, index: int) -> Task:
        if index < 0:
            raise TaskError(f"{self.name} has no task {index}: indices start at 0")
        past = index - self.size
        found = self._trained[index] if past < 0 else self._held_out[past % len(self._held_out)]
        return replace(found, index=index)


def _held_out(questions: set[str]) -> set[str]:
    count = max(1, len(questions) // HELD_OUT_ONE_IN)
    return set(sorted(questions, key=lambda question: (question_hash(question), question))[:count])


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise MissingError(f"{path}: {error.strerror}; `jsonl:` takes the path of a file to read") from error
    return ((number, line) for number, line in enumerate(content.split(b"\n"), 1) if line.strip())


def _checked(path: Path, lines: Iterator[tuple[int, bytes]]) -> Iterator[Line]:
    for number, text in lines:
        try:
            line = msgspec.json.decode(text, type=Line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise TaskError(f"{path}:{number}: {error}") from error
        if line.rule not in RULES:
            raise TaskError(f"{path}:{number}: no rule is called {line.rule!r}; {nearest(line.rule, RULES)}")
        if not line.question.strip():
            raise TaskError(f"{path}:{number}: the question is empty")
        if not _answerable(line):
            raise TaskError(
                f"{path}:{number}: the rule {line.rule!r} cannot read the answer {line.answer[:40]!r}"
            )
        yield line


def _answerable(line: Line) -> bool:
    task = Task(SourceName(""), 0, line.question, line.rule, line.answer)
    return verify(task, [f"<answer>{right_answer(line.rule, line.answer)}</answer>"]) == (1.0,)
