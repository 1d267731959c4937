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

from waggledance.verify.logic import entails
from waggledance.verify.number import parse_number

Rule = Callable[[str, str, bool], float]

_FRACTION = re.compile(
    r"(?P<sign>[+-]?)\s*(?:"
    r"(?P<above>[0-9]{1,200})(?:\s*/\s*(?P<below>[0-9]{1,200}))?"
    r"|\\[dt]?frac\s*\{\s*(?P<tex_above>[0-9]{1,200})\s*\}\s*\{\s*(?P<tex_below>[0-9]{1,200})\s*\})"
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


RULES: Mapping[str, Rule] = {
    rule.__name__: rule for rule in (text, word, number, near, fraction, digits, matrix, logic)
}


def right_answer(rule: str, truth: str) -> str:
    """An answer that the rule pays 1 for, if any does; for most rules the truth itself."""
    match rule:
        case "near":
            return "".join(truth.split()[:1])
        case "logic":
            return " ∧ ".join(f"({premise})" for premise in truth.splitlines() if premise.strip())
        case _:
            return truth
