"""The answer in a completion: what stands between the last pair of answer tags."""

import re

from waggledance.verify.number import LIMIT_DIGITS

OPEN, CLOSE = "<answer>", "</answer>"
LIMIT_BYTES = 2000
"""A longer answer is no answer. The longest right one in the paper's tasks, a 10 × 10 matrix, has 200."""

_IMMODEST = re.compile(
    rf"[0-9]{{{LIMIT_DIGITS + 1},}}"
    r"|\b[0-9]+(?:\.[0-9]*)?[eE][+-]?[0-9]{3,}"
    r"|(?:\*\*|\^)[\s(]*(?:2[1-9]|[3-9][0-9]|[0-9]{3,})"
)
"""Too many digits, an exponent of three, a power above twenty."""


def is_modest(answer: str) -> bool:
    """Whether its numbers are of a size that people write: a scorer that is not ours sees no others."""
    return _IMMODEST.search(answer) is None


def extract(text: str) -> str | None:
    """The stripped text between the last `<answer>` that is closed and its `</answer>`, else None."""
    start = text.rfind(OPEN, 0, max(text.rfind(CLOSE), 0))
    if start < 0:
        return None
    start += len(OPEN)
    answer = text[start : text.index(CLOSE, start)].strip()
    # A completion may hold lone surrogates; they count three bytes each and match nothing.
    return answer if len(answer.encode("utf-8", "surrogatepass")) <= LIMIT_BYTES else None
