"""Small sums: `What is 3 + 4?`. A source that needs nothing but Python."""

from random import Random

from waggledance.errors import TaskError
from waggledance.seed import derive
from waggledance.task import Digest, SourceName, Task
from waggledance.tasks.split import SIZE, canonical_digest, draws, is_held_out


class Arithmetic:
    name = SourceName("arithmetic")

    def __init__(self, size: int = SIZE, digits: int = 1, operators: str = "+-") -> None:
        """Terms have up to this many digits; operators are any of + - *."""
        assert 0 < size <= SIZE
        assert digits > 0
        assert operators
        assert set(operators) <= set("+-*")
        self.size = size
        self._highest = 10**digits - 1
        self._operators = operators
        self._digest: Digest | None = None

    @property
    def digest(self) -> Digest:
        if self._digest is None:
            self._digest = canonical_digest(self.task, self.size, (self._highest, self._operators))
        return self._digest

    def task(self, index: int) -> Task:
        for number in draws(self.name, index):
            question, truth = self._sum(number)
            if is_held_out(question) == (index >= self.size):
                return Task(self.name, index, question, "number", truth)
        raise TaskError(f"{self.name} has too few questions to hold any out: give it more digits")

    def _sum(self, number: int) -> tuple[str, str]:
        random = Random(derive("arithmetic", number))
        left, right = random.randint(0, self._highest), random.randint(0, self._highest)
        operator = random.choice(self._operators)
        results = {"+": left + right, "-": left - right, "*": left * right}
        return f"What is {left} {operator} {right}?", str(results[operator])
