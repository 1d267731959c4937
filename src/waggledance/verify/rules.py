"""Rules: how an answer is held against the truth.

A rule is a pure function (answer, truth, partial) → reward in [0, 1], chosen by name from a closed table.
Rules are our own because a reward must not depend on running, or on raising at, what a stranger wrote.
They pay 1 or 0; only where a task asks for partial credit does `matrix` pay for the cells that are right.
"""

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import chain
from math import gcd

from waggledance.verify.expression import Expression, Monomial, read_expression
from waggledance.verify.logic import entails
from waggledance.verify.number import parse_number

Rule = Callable[[str, str, bool], float]

_FRACTION = re.compile(
    r"(?P<sign>[+-]?)\s*(?:"
    r"(?P<above>[0-9]{1,200})(?:\s*/\s*(?P<below>[0-9]{1,200}))?"
    r"|\\[dt]?frac\s*\{\s*(?P<tex_above>[0-9]{1,200})\s*\}\s*\{\s*(?P<tex_below>[0-9]{1,200})\s*\})"
)
_COMPLEX = re.compile(
    r"(?P<real>[+-]?[0-9.]{1,200}(?![0-9.i]))?\s*(?:(?P<imaginary>[+-]?\s*[0-9.]{1,200})i)?"
)
_DIGITS = re.compile(r"[0-9a-z]{1,200}")
_ROW_BREAKS = str.maketrans({"[": " ", ",": " ", "]": "\n", ";": "\n"})
_QUOTES = "\"'`“”‘’*"
_STOPS = ".,;:!?"


def text(answer: str, truth: str, _partial: bool) -> float:
    """The same text but for space around it."""
    return float(answer.strip() == truth.strip() != "")


def word(answer: str, truth: str, _partial: bool) -> float:
    """The same word or words, whatever the case, the quotes around them or the stop behind."""
    return float(_plain(answer) == _plain(truth) != "")


def _plain(words: str) -> str:
    return words.strip().strip(_QUOTES).rstrip(_STOPS + _QUOTES).strip().casefold()


def number(answer: str, truth: str, _partial: bool) -> float:
    """The same value, exactly: 7, +7, 007 and 7.0 are one number."""
    value = parse_number(answer)
    return float(value is not None and value == parse_number(truth))


def near(answer: str, truth: str, _partial: bool) -> float:
    """A value within a tolerance; the truth holds both: `3.1416 0.001`."""
    value, numbers = parse_number(answer), [parse_number(part) for part in truth.split()]
    match numbers:
        case [Fraction() as centre, Fraction() as tolerance] if value is not None:
            return float(abs(value - centre) <= tolerance)
        case _:
            return 0.0


def fraction(answer: str, truth: str, _partial: bool) -> float:
    """The same fraction in lowest terms, written 2/3, \\frac{2}{3} or \\dfrac{2}{3}, in $ or not."""
    said, true = _terms(answer), _terms(truth)
    if said is None or true is None or gcd(*said) != 1:
        return 0.0
    return float(said[0] * true[1] == true[0] * said[1])


def _terms(written: str) -> tuple[int, int] | None:
    """Numerator and denominator as written; the denominator of a whole number is 1."""
    match = _FRACTION.fullmatch(written.strip().strip("$").strip())
    if match is None:
        return None
    above = int(match["above"] or match["tex_above"])
    below = int(match["below"] or match["tex_below"] or 1)
    if below == 0:
        return None
    return (-above if match["sign"] == "-" else above), below


def digits(answer: str, truth: str, _partial: bool) -> float:
    """The same digits in whatever base: 0fF is ff. The base is the question's; no prefix is read."""
    said, true = answer.strip().lower(), truth.strip().lower()
    if not (_DIGITS.fullmatch(said) and _DIGITS.fullmatch(true)):
        return 0.0
    return float(said.lstrip("0") == true.lstrip("0"))


def matrix(answer: str, truth: str, partial: bool) -> float:
    """The same rows of numbers, a row a line or in brackets, with spaces or commas between the cells."""
    said, true = _rows(answer), _rows(truth)
    if not true or [len(row) for row in said] != [len(row) for row in true]:
        return 0.0
    cells = [a is not None and a == b for a, b in zip(chain(*said), chain(*true), strict=True)]
    return sum(cells) / len(cells) if partial else float(all(cells))


def _rows(written: str) -> list[list[Fraction | None]]:
    lines = written.translate(_ROW_BREAKS).splitlines()
    return [[parse_number(cell) for cell in line.split()] for line in lines if line.strip()]


def logic(answer: str, truth: str, _partial: bool) -> float:
    """A formula that follows from the premises, which are the truth, one a line. See `logic.entails`."""
    return float(entails(truth, answer))


def expression(answer: str, truth: str, _partial: bool) -> float:
    """Any sum, product or quotient of the given numbers, each used once, that comes to the target.

    The truth is one that does.
    """
    said, true = read_expression(answer), read_expression(truth)
    if said is None or true is None or said.numbers != true.numbers:
        return 0.0
    return float(said.constant() is not None and said.constant() == true.constant())


def polynomial(answer: str, truth: str, _partial: bool) -> float:
    """The same polynomial, multiplied out or not; powers written ** or ^."""
    said, true = read_expression(answer), read_expression(truth)
    return float(said is not None and true is not None and said.value == true.value)


def integral(answer: str, truth: str, _partial: bool) -> float:
    """The same polynomial but for a constant, which may be called C."""
    said, true = read_expression(answer), read_expression(truth)
    return float(said is not None and true is not None and _varying(said) == _varying(true) != {})


def _varying(read: Expression) -> dict[Monomial, Fraction]:
    return {monomial: part for monomial, part in read.value.items() if {name for name, _ in monomial} - {"C"}}


def complex_number(answer: str, truth: str, _partial: bool) -> float:
    """The same complex number, written 3.0 - 2.0i, -2i or 3; parts compare as numbers do."""
    said = _parts(answer)
    return float(said is not None and said == _parts(truth))


def _parts(written: str) -> tuple[Fraction, Fraction] | None:
    match = _COMPLEX.fullmatch(written.strip())
    if match is None or not (match["real"] or match["imaginary"]):
        return None
    real = parse_number(match["real"] or "0")
    imaginary = parse_number("".join((match["imaginary"] or "0").split()))
    return None if real is None or imaginary is None else (real, imaginary)


def queens(answer: str, truth: str, _partial: bool) -> float:
    """A board on which no queen attacks another and those that were there have stayed.

    The truth is the board as it was, an empty line, and one solution. A cell is Q or _.
    """
    given, said = _board(truth.partition("\n\n")[0]), _board(answer)
    places = [
        (row, column) for row, cells in enumerate(said) for column, cell in enumerate(cells) if cell == "Q"
    ]
    if len(said) != len(given) or len(places) != len(given) or not given:
        return 0.0
    if any(len(cells) != len(given) or set(cells) - {"Q", "_"} for cells in said):
        return 0.0
    stayed = all(
        here == "Q"
        for before, now in zip(given, said, strict=True)
        for was, here in zip(before, now, strict=True)
        if was == "Q"
    )
    lines = ({row for row, _ in places}, {column for _, column in places})
    diagonals = ({row - column for row, column in places}, {row + column for row, column in places})
    return float(stayed and all(len(line) == len(given) for line in (*lines, *diagonals)))


def _board(written: str) -> list[list[str]]:
    return [row.split() for row in written.strip().splitlines()]


RULES: Mapping[str, Rule] = {
    rule.__name__: rule
    for rule in (
        *(text, word, number, near, fraction, digits, matrix, logic),
        *(expression, polynomial, integral, complex_number, queens),
    )
}


def right_answer(rule: str, truth: str) -> str:
    """An answer that the rule pays 1 for, if any does; for most rules the truth itself."""
    match rule:
        case "near":
            return "".join(truth.split()[:1])
        case "queens":
            return truth.partition("\n\n")[2]
        case "logic":
            return " ∧ ".join(f"({premise})" for premise in truth.splitlines() if premise.strip())
        case _:
            return truth
