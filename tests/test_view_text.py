"""Hostile text: nothing that comes out can move a cursor, forge a line or climb out of its own."""

import io
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from waggledance.view.text import plain, safe, short_names


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("one\ntwo\r\nthree", "one⏎two⏎three"),
        ("\x1b[2J\x1b[1;1Howned", "␛[2J␛[1;1Howned"),
        ("\x9b31m", "�31m"),
        ("a\tb", "a b"),
        ("left\u202eright", "left�right"),
        ("zero\u200bwidth\ufeff", "zero�width�"),
        ("line\u2028para\u2029", "line⏎para⏎"),
        ("[bold red]not markup[/]", "[bold red]not markup[/]"),
        ("\x00\x07\x7f", "␀␇�"),
        ("\ud800", "�"),
        ("\u3164\u2800", "��"),
        ("Z" + "\u0301\u0302\u0303\u0304\u0305" * 9, "Ź\u0302\u0303"),
        ("\u0301at the start", "at the start"),
        ("\U000e0041tag", "�tag"),
        ("naïve 日本 café ✓", "naïve 日本 café ✓"),
    ],
)
def test_what_hostile_text_looks_like(hostile: str, shown: str) -> None:
    assert plain(hostile, 60) == shown


def test_a_long_text_is_cut_and_says_so() -> None:
    assert plain("abcdef", 6) == "abcdef"
    assert plain("abcdefg", 6) == "abcde…"
    assert plain("a" * 10_000_000, 5) == "aaaa…"
    assert plain("abc", 0) == ""


anything = st.one_of(
    st.text(),
    st.text(
        st.characters(categories=["Cc", "Cf", "Cs", "Co", "Cn", "Mn", "Me", "Zl", "Zp", "Zs", "Sk", "Ll"])
    ),
)


@given(anything, st.integers(0, 50))
def test_nothing_outside_printable_survives(text: str, limit: int) -> None:
    shown = plain(text, limit)
    assert len(shown) <= limit
    assert shown.isprintable()
    assert all(character == " " or unicodedata.category(character) != "Zs" for character in shown)
    marks = 2
    for character in shown:
        marks = marks + 1 if unicodedata.category(character) in ("Mn", "Me") else 0
        assert marks <= 2


@given(anything)
def test_shown_in_a_terminal_it_stays_one_line_without_a_code_of_its_own(text: str) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system="truecolor", width=200)
    console.print(safe(text, 60), end="|")
    printed = out.getvalue()
    assert printed == f"{plain(text, 60)}|"
    assert "\x1b" not in printed


def test_names_lose_what_they_share_only_where_they_are_too_long() -> None:
    assert short_names(["n0", "n1"], 4) == {"n0": "n0", "n1": "n1"}
    assert short_names(["node-10", "node-11"], 4) == {"node-10": "0", "node-11": "1"}
    assert short_names(["a\x1bverylong"], 4) == {"a\x1bverylong": "a␛v…"}
    assert short_names([], 4) == {}
