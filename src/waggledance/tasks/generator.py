"""The generator: makes items, here or as a child that answers over its standard input and output.

The only file that imports ReasoningGYM, and only once an item is wanted: the import takes a second.
Some datasets iterate over sets of strings, so their items hang on Python's string hashes: items are made
where PYTHONHASHSEED is 0. `python -m waggledance.tasks.generator` is that place when this one is not.
"""

import contextlib
import copy
import decimal
import io
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

import msgspec

from waggledance.errors import TaskError
from waggledance.tasks.item import Failure, Item, Wanted
from waggledance.tasks.recipes import RECIPES, SEED
from waggledance.tasks.split import SIZE, draws, is_held_out
from waggledance.verify import is_modest

_UNLUCKY = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What a dataset's own code may raise on a number it was not tried on: that number is passed over."""
LIMIT_DIVISIBLE = 10**12
"""basic_arithmetic looks for divisors one by one up to the root: one item in 50,000 would take minutes."""


_Scorer = Callable[[str, dict[str, Any]], float]


class _Dataset(Protocol):
    def __getitem__(self, index: int, /) -> dict[str, Any]: ...
    def score_answer(self, answer: str, entry: dict[str, Any]) -> float: ...


class Generator:
    """Makes items in this interpreter. Keeps the datasets: some take half a second to build."""

    def __init__(self) -> None:
        self._datasets: dict[str, _Dataset] = {}

    def make(self, recipe: str, index: int) -> Item:
        # Datasets reach out of their calls: one prints a dot an item, one sets the decimal precision of
        # the whole thread, which another relies on.
        with contextlib.redirect_stdout(io.StringIO()), decimal.localcontext(decimal.Context()):
            return self._make(recipe, index)

    def score(self, recipe: str, index: int, answers: Sequence[str | None]) -> tuple[float, ...]:
        """By the dataset's own scorer, which may do anything: for the cage alone. Pays full marks or 0."""
        with contextlib.redirect_stdout(io.StringIO()), decimal.localcontext(decimal.Context()):
            entry = self._entry(recipe, index)
            scorer = self._dataset(recipe).score_answer
            return tuple(_full_marks(scorer, answer, entry) for answer in answers)

    def _make(self, recipe: str, index: int) -> Item:
        entry = self._entry(recipe, index)
        return Item(entry["question"], RECIPES[recipe].truth(entry))

    def _entry(self, recipe: str, index: int) -> dict[str, Any]:
        dataset = self._dataset(recipe)
        held_out = index >= SIZE
        failed: Exception | None = None
        items = RECIPES[recipe].items
        for number in draws(recipe, index):
            try:
                entry = dataset[number % items if items else number]
            except _UNLUCKY as error:
                failed = error
                continue
            if is_held_out(entry["question"]) == held_out:
                return entry
        side = "held-out" if held_out else "trainable"
        raise TaskError(f"{recipe} cannot make task {index}: no {side} question was drawn") from failed

    def _dataset(self, recipe: str) -> _Dataset:
        if recipe not in self._datasets:
            from reasoning_gym import factory  # pyright: ignore[reportMissingTypeStubs]
            from reasoning_gym.arithmetic import basic_arithmetic  # pyright: ignore[reportMissingTypeStubs]

            basic_arithmetic.find_common_divisors = _divisors
            create = cast("Callable[..., _Dataset]", factory.create_dataset)  # pyright: ignore[reportUnknownMemberType]
            wanted = RECIPES[recipe]
            self._datasets[recipe] = create(wanted.dataset, seed=SEED, **wanted.parameters)
        return self._datasets[recipe]


def _full_marks(scorer: _Scorer, answer: str | None, entry: dict[str, Any]) -> float:
    if answer is None or not is_modest(answer):
        return 0.0
    try:
        return float(scorer(answer, copy.deepcopy(entry)) >= 1)
    except _UNLUCKY:  # scorers raise at answers of a shape that they do not expect
        return 0.0


def _divisors(left: int, right: int) -> list[int]:
    """In the order of ReasoningGYM's own, so that the same ones are drawn."""
    common = math.gcd(left, right)
    if common > LIMIT_DIVISIBLE:
        raise OverflowError(f"{common} has more than {LIMIT_DIVISIBLE} to try")
    low = [divisor for divisor in range(1, math.isqrt(common) + 1) if common % divisor == 0]
    return [divisor for pair in low for divisor in dict.fromkeys((pair, common // pair))]


def main() -> None:
    """Answers one line with one line until the input ends, which is when the parent does."""
    generator = Generator()
    for line in sys.stdin.buffer:
        wanted = msgspec.json.decode(line, type=Wanted)
        reply: Item | Failure
        try:
            reply = generator.make(wanted.recipe, wanted.index)
        except TaskError as error:
            reply = Failure(str(error))
        sys.stdout.buffer.write(msgspec.json.encode(reply) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
