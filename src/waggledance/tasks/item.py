"""Items: a question and its truth, as ReasoningGYM made them; and how they are asked for.

Also the words that cross the pipe between a node and its generator: one JSON line each way.
"""

from typing import Protocol

import msgspec


class Wanted(msgspec.Struct, frozen=True):
    recipe: str
    index: int


class Item(msgspec.Struct, frozen=True, tag=True):
    question: str
    truth: str


class Failure(msgspec.Struct, frozen=True, tag=True):
    reason: str


class Maker(Protocol):
    def make(self, recipe: str, index: int) -> Item:
        """The same item on every machine; TaskError where there is none."""
        ...
