"""Errors the world causes, as a tree. One line each: the value, the limit, what to do.

    WaggleError                 exit code
    ├── UsageError                  2      a flag, a key or a value is wrong
    ├── MissingError                3      a file, folder or model that was named is not there or not readable
    ├── ModelError                  4      a model or tokenizer that cannot be used
    │   └── DivergedError           4      its gradients are not finite any more
    ├── TaskError                   5      a task source that is unknown or unusable
    ├── SwarmError                  6      the swarm cannot be joined
    ├── StorageError                7      the disk is full or cannot be written
    └── NodeError                   8      a node process ended before its work was done

A bug of ours is an AssertionError or whatever else it raises: exit code 70, with its traceback.
"""

import difflib
from collections.abc import Iterable
from typing import ClassVar


class WaggleError(Exception):
    exit_code: ClassVar[int] = 1


class UsageError(WaggleError):
    exit_code = 2


class MissingError(WaggleError):
    exit_code = 3


class ModelError(WaggleError):
    exit_code = 4


class DivergedError(ModelError):
    """Learning went wrong; the weights are those of the last step that was sound."""


class TaskError(WaggleError):
    exit_code = 5


class SwarmError(WaggleError):
    exit_code = 6


class StorageError(WaggleError):
    exit_code = 7


class NodeError(WaggleError):
    exit_code = 8


BUG_EXIT_CODE = 70
INTERRUPTED_EXIT_CODE = 130


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint for a misspelt word: the nearest known ones, or the whole list where nothing is near."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else f"known: {', '.join(names)}"


NO_MEMORY = ("not enough memory", "out of memory", "can't allocate memory")
"""What torch's allocators say, each of them in a RuntimeError."""


def lacks_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or any(words in str(error) for words in NO_MEMORY)
