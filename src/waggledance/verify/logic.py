"""Propositional formulas as truth tables.

A formula over n letters is read straight into its truth table: an integer with one bit for each of the
2**n rows. Connectives are bit operations, and "follows from" is one more.
Binding, loosest first: ↔ → ∨ ∧ ¬; → groups to the right.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from string import ascii_uppercase

LIMIT_LETTERS = 8
LIMIT_DEPTH = 40
"""Brackets are the only thing that recurses, five calls a level."""

_CONNECTIVES = "↔→∨∧"


class _NotAFormulaError(ValueError):
    """What was read is no formula."""


def entails(premises: str, conclusion: str) -> bool:
    """Whether the conclusion follows from the premises, one a line, and says anything at all.

    What is true whatever its letters mean earns nothing, nor does a letter that no premise holds: with both
    allowed, as in ReasoningGYM, the constant answer "P ∨ Q" earns 0.81 on the paper's questions. Premises
    that contradict each other (one question in five) entail everything, so there only the contradiction
    itself is paid. What is left for a constant is 0.46. Repeating a premise is paid: it follows, and to
    forbid it would only move the pay to that premise "∨ Q" and leave some questions without an answer.
    """
    letters = sorted(set(premises) & set(ascii_uppercase))
    if len(letters) > LIMIT_LETTERS:
        return False
    rows = 1 << len(letters)
    always = (1 << rows) - 1
    columns = {
        letter: sum(1 << row for row in range(rows) if row >> place & 1)
        for place, letter in enumerate(letters)
    }
    try:
        known = [_table(line, columns, always) for line in premises.splitlines() if line.strip()]
        claim = _table(conclusion, columns, always)
    except _NotAFormulaError:
        return False
    given = reduce(int.__and__, known, always)
    return claim != always and (given & ~claim == 0 if given else claim == 0)


def _table(formula: str, columns: Mapping[str, int], always: int) -> int:
    reader = _Reader("".join(formula.split()), columns, always)
    table = reader.chain(0)
    if reader.position < len(reader.symbols):
        raise _NotAFormulaError
    return table


@dataclass(slots=True)
class _Reader:
    symbols: str
    columns: Mapping[str, int]
    always: int
    position: int = 0
    depth: int = 0

    def chain(self, binding: int) -> int:
        """Terms joined by the connective of this binding; each term binds more tightly."""
        if binding == len(_CONNECTIVES):
            return self.term()
        tables = [self.chain(binding + 1)]
        while self.take(_CONNECTIVES[binding]):
            tables.append(self.chain(binding + 1))
        return reduce(lambda right, left: self.join(_CONNECTIVES[binding], left, right), reversed(tables))

    def term(self) -> int:
        flips = 0
        while self.take("¬"):
            flips ^= self.always
        if self.take("("):
            return self.bracket() ^ flips
        letter = self.symbols[self.position : self.position + 1]
        if letter not in self.columns:
            raise _NotAFormulaError
        self.position += 1
        return self.columns[letter] ^ flips

    def bracket(self) -> int:
        self.depth += 1
        if self.depth > LIMIT_DEPTH:
            raise _NotAFormulaError
        table = self.chain(0)
        if not self.take(")"):
            raise _NotAFormulaError
        self.depth -= 1
        return table

    def take(self, symbol: str) -> bool:
        taken = self.symbols.startswith(symbol, self.position)
        self.position += taken
        return taken

    def join(self, connective: str, left: int, right: int) -> int:
        match connective:
            case "∧":
                return left & right
            case "∨":
                return left | right
            case "→":
                return left ^ self.always | right
            case _:
                return left ^ right ^ self.always
