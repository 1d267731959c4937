"""Numbers as people write them, read exactly and within bounds.

Python's own readers are not used on hostile text: they take any script's digits and underscores, build
numbers of any length and, beyond a limit that is the user's to set, raise.
"""

import re
from fractions import Fraction

LIMIT_DIGITS = 200
LIMIT_EXPONENT = 20

_NUMBER = re.compile(
    r"(?P<sign>[+-]?)"
    r"(?P<whole>[0-9]{1,3}(?:,[0-9]{3})+|[0-9]*)"  # thousands separators everywhere or nowhere
    r"(?:\.(?P<places>[0-9]*))?"
    r"(?:[eE](?P<exponent>[+-]?[0-9]{1,2}))?"
)


def parse_number(text: str) -> Fraction | None:
    """The exact value of `-1,234.50`, `7.`, `.5` or `1.2E+5`; None for anything else or too much of it."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        return None
    places = match["places"] or ""
    digits = match["whole"].replace(",", "") + places
    exponent = int(match["exponent"] or 0)
    if not digits or len(digits) > LIMIT_DIGITS or abs(exponent) > LIMIT_EXPONENT:
        return None
    magnitude = int(digits) * Fraction(10) ** (exponent - len(places))
    return -magnitude if match["sign"] == "-" else magnitude
