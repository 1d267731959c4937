"""What is held out: a question's own hash says so, in every source.

A split by index would not do: small tasks draw the same question under many indices, and a held-out set
made of questions that were trained on measures memory. So an index below `size` yields, by redrawing, a
question that may be trained on, and one from `size` up a question that is held out.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence

import msgspec

from waggledance.errors import TaskError
from waggledance.task import Digest, Task

SIZE = 1_000_000
"""Trainable indices of an endless source; as many held-out ones follow."""
HELD_OUT_ONE_IN = 10
LIMIT_DRAWS = 2000
CANONICAL_TRAINED, CANONICAL_HELD_OUT = 12, 4
SALT = b"honey"
"""Picked so that small tasks, too, hold out their share: of the fifteen questions of easy:count_bits, two."""


def question_hash(question: str) -> int:
    digest = hashlib.blake2b(question.encode("utf-8", "surrogatepass"), digest_size=8, person=SALT)
    return int.from_bytes(digest.digest(), "big")


def is_held_out(question: str) -> bool:
    return question_hash(question) % HELD_OUT_ONE_IN == 0


def draws(source: str, index: int) -> Iterator[int]:
    """The numbers to draw with, one after the other, until the question is on the index's side."""
    if not 0 <= index < 2 * SIZE:
        raise TaskError(f"{source} has no task {index}: its tasks are 0 … {2 * SIZE - 1}")
    return (index + attempt * 2 * SIZE for attempt in range(LIMIT_DRAWS))


def canonical_digest(task: Callable[[int], Task], size: int, made_from: object) -> Digest:
    """A hash over 16 tasks from both sides of the split, and over whatever else makes a source's tasks."""
    trained = [size * place // CANONICAL_TRAINED for place in range(CANONICAL_TRAINED)]
    held_out = [size + place for place in range(CANONICAL_HELD_OUT)]
    return digest_of([task(index) for index in trained + held_out], made_from)


def digest_of(tasks: Sequence[Task], made_from: object = None) -> Digest:
    facts = [(task.question, task.truth, task.rule, task.partial) for task in tasks]
    content = msgspec.json.encode((facts, made_from), order="deterministic")
    return Digest(hashlib.blake2b(content, digest_size=8).hexdigest())
