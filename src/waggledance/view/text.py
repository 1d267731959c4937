"""Hostile text made safe to show: what comes out moves no cursor and forges no line.

Takes any string, a peer's completion above all; gives one line of printable characters, in which what was
unprintable can be seen. Rich markup needs no escape as long as nothing parses it: show it with `safe`, which
makes a `Text`, never inside a markup string.
"""

import unicodedata
from collections.abc import Iterable
from itertools import takewhile

from rich.text import Text

from waggledance.rollout import Author, name_of

ELLIPSIS = "…"
UNSHOWABLE = "�"

_LINE_ENDS = frozenset("\n\v\f\x85\u2028\u2029")
_BLANK_LETTERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Printable by Unicode's tables, invisible on a screen."""
_MARKS_LIMIT = 2
"""More marks than this on one letter climb over the lines above."""


def plain(text: str, limit: int) -> str:
    """One line of at most `limit` characters, every one of them visible or a space."""
    # The cut comes first too: normalising a megabyte to show sixty characters would be a gift to a flooder.
    cut = text[: 4 * limit + 4]
    if cut.isascii() and cut.isprintable():  # nearly every text, and a page has thousands
        return cut if len(text) <= limit else text[: max(0, limit - 1)] + ELLIPSIS[:limit]
    shown: list[str] = []
    marks = _MARKS_LIMIT
    for character in unicodedata.normalize("NFC", cut.replace("\r\n", "\n")):
        category = unicodedata.category(character)
        if category in ("Mn", "Me"):
            marks += 1
            if marks <= _MARKS_LIMIT and not _selects_variant(character) and character not in _BLANK_LETTERS:
                shown.append(character)
            continue
        shown.append(_visible(character))
        # A mark may only sit on a letter: on a space, or at the start, it would reach what stands before.
        marks = 0 if category[0] in "LNM" else _MARKS_LIMIT
    line = "".join(shown)
    whole = len(line) <= limit and len(cut) == len(text)
    return line if whole else line[: max(0, limit - 1)] + ELLIPSIS[:limit]


def plain_lines(text: str, limit: int, lines_limit: int) -> str:
    """The same over several lines, for where a line's end can forge nothing."""
    lines = text[: 4 * limit].replace("\r\n", "\n").split("\n")
    shown = "\n".join(plain(line, limit) for line in lines[:lines_limit])
    cut = len(lines) > lines_limit or len(text) > 4 * limit or len(shown) > limit
    return shown[: max(0, limit - 1)] + ELLIPSIS if cut else shown


def safe(text: str, limit: int, style: str = "") -> Text:
    """The same as a renderable in which nothing is markup."""
    return Text(plain(text, limit), style=style, no_wrap=True, end="")


def short_names(names: Iterable[str], limit: int) -> dict[str, str]:
    """Names without fingerprints, and without what they all begin with where they are too long to show
    whole."""
    known = {name: name_of(Author(name)) for name in names}
    columns = zip(*known.values(), strict=False) if len(known) > 1 else ()
    shared = sum(1 for _ in takewhile(lambda letters: len(set(letters)) == 1, columns))
    return {name: plain(word if len(word) <= limit else word[shared:], limit) for name, word in known.items()}


def _visible(character: str) -> str:
    if character in _LINE_ENDS:
        return "⏎"
    if character == "\t" or unicodedata.category(character) == "Zs":
        return " "
    if character < "\x20":
        return chr(0x2400 + ord(character))
    if not character.isprintable() or character in _BLANK_LETTERS:
        return UNSHOWABLE
    return character


def _selects_variant(character: str) -> bool:
    """Variation selectors change how wide terminals draw a character, and terminals disagree about it."""
    return "\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef"
