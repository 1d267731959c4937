"""Expressions read into polynomials with exact coefficients: sums, products, quotients by numbers, powers.

Takes the place of parsers that run what they read. A reader has a budget of multiplications, so that no text
costs more than its writer could have spelt out; what exceeds it, or is no expression, is None.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from waggledance.verify.number import LIMIT_DIGITS, LIMIT_EXPONENT

LIMIT_DEPTH = 40
LIMIT_PRODUCTS = 4000
LIMIT_BITS = 4096
"""Of a coefficient's numerator and denominator."""

Monomial = tuple[tuple[str, int], ...]
"""Variables and their powers, in the alphabet's order."""
CONSTANT: Monomial = ()
Polynomial = Mapping[Monomial, Fraction]

_TOKEN = re.compile(r"\s*(?:(?P<number>[0-9]+(?:\.[0-9]+)?)|(?P<name>[A-Za-z])|(?P<sign>\*\*|[-+*/^()]))")


class _NoExpressionError(ValueError):
    """What was read is no expression, or one that would cost too much."""


@dataclass(frozen=True, slots=True)
class Expression:
    value: Polynomial
    numbers: Counter[str]
    """The numbers as they were written: how often each."""

    def constant(self) -> Fraction | None:
        """None where it has variables."""
        return self.value.get(CONSTANT, Fraction(0)) if self.value.keys() <= {CONSTANT} else None


def read_expression(text: str) -> Expression | None:
    try:
        reader = _Reader(_tokens(text))
        value = reader.terms()
        if reader.place < len(reader.tokens):
            return None
    except _NoExpressionError:
        return None
    numbers = Counter(token for token in reader.tokens if token[0].isdigit())
    return Expression(value, numbers)


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    place, text = 0, text.strip()
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise _NoExpressionError
        tokens.append(match.group().strip())
        place = match.end()
    if any(len(token) > LIMIT_DIGITS for token in tokens):
        raise _NoExpressionError
    return tokens


@dataclass(slots=True)
class _Reader:
    tokens: list[str]
    place: int = 0
    depth: int = 0
    products: int = 0
    _one: Polynomial = field(default_factory=lambda: {CONSTANT: Fraction(1)})

    def terms(self) -> Polynomial:
        value = self.factors()
        while sign := self.take("+", "-"):
            value = self.plus(value, self.factors(), 1 if sign == "+" else -1)
        return value

    def factors(self) -> Polynomial:
        value = self.signed()
        while sign := self.take("*", "/"):
            factor = self.signed()
            value = self.times(value, factor if sign == "*" else _inverse(factor))
        return value

    def signed(self) -> Polynomial:
        negative = False
        while sign := self.take("+", "-"):
            negative ^= sign == "-"
        value = self.power()
        return self.plus({}, value, -1) if negative else value

    def power(self) -> Polynomial:
        """-x**2 is -(x**2), as in Python; a power of a power needs brackets."""
        root = self.atom()
        if not self.take("**", "^"):
            return root
        exponent = self.tokens[self.place] if self.place < len(self.tokens) else ""
        if not exponent.isdigit() or int(exponent) > LIMIT_EXPONENT:
            raise _NoExpressionError
        self.place += 1
        value = self._one
        for _ in range(int(exponent)):
            value = self.times(value, root)
        return value

    def atom(self) -> Polynomial:
        if self.take("("):
            self.depth += 1
            if self.depth > LIMIT_DEPTH:
                raise _NoExpressionError
            value = self.terms()
            if not self.take(")"):
                raise _NoExpressionError
            self.depth -= 1
            return value
        token = self.tokens[self.place] if self.place < len(self.tokens) else ""
        self.place += 1
        if token[:1].isdigit():
            return {CONSTANT: Fraction(token)}
        if token.isalpha():
            return {((token, 1),): Fraction(1)}
        raise _NoExpressionError

    def take(self, *signs: str) -> str:
        if self.place < len(self.tokens) and self.tokens[self.place] in signs:
            self.place += 1
            return self.tokens[self.place - 1]
        return ""

    def plus(self, left: Polynomial, right: Polynomial, sign: int) -> Polynomial:
        self._spend(len(right))
        value = dict(left)
        for monomial, coefficient in right.items():
            value[monomial] = value.get(monomial, Fraction(0)) + sign * coefficient
        return _checked(value)

    def times(self, left: Polynomial, right: Polynomial) -> Polynomial:
        self._spend(len(left) * len(right))
        value: dict[Monomial, Fraction] = {}
        for first, one in left.items():
            for second, other in right.items():
                powers = Counter(dict(first))
                powers.update(dict(second))
                monomial = tuple(sorted(powers.items()))
                value[monomial] = value.get(monomial, Fraction(0)) + one * other
        return _checked(value)

    def _spend(self, products: int) -> None:
        self.products += products
        if self.products > LIMIT_PRODUCTS:
            raise _NoExpressionError


def _inverse(value: Polynomial) -> Polynomial:
    """Of a number that is not 0; nothing else is divided by."""
    if list(value) != [CONSTANT] or not value[CONSTANT]:
        raise _NoExpressionError
    return {CONSTANT: 1 / value[CONSTANT]}


def _checked(value: Mapping[Monomial, Fraction]) -> Polynomial:
    kept = {monomial: coefficient for monomial, coefficient in value.items() if coefficient}
    for coefficient in kept.values():
        if max(coefficient.numerator.bit_length(), coefficient.denominator.bit_length()) > LIMIT_BITS:
            raise _NoExpressionError
    return kept
