"""Rules: what they pay for, and that no text makes them raise or dawdle."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waggledance.task import SourceName, Task
from waggledance.verify import LIMIT_BYTES, RULES, extract, right_answer, verify
from waggledance.verify.number import parse_number

TRUTHS = {
    "text": "hello",
    "word": "Monday",
    "number": "-12.5",
    "near": "3.1416 0.001",
    "fraction": r"$\frac{2}{3}$",
    "digits": "1f",
    "matrix": "1 2\n3 4",
    "logic": "(P → Q)\nP",
    "expression": "(9 - 5)*(8 - 2)",
    "polynomial": "6*x**2 - 54",
    "integral": "3*X**3/2 - X + C",
    "complex_number": "3.0 - 2.5i",
    "queens": "_ _ _ _\n_ _ _ _\n_ _ _ _\n_ _ _ _\n\n_ Q _ _\n_ _ _ Q\nQ _ _ _\n_ _ Q _",
}
HOSTILE = [
    "(x+y+z)**20*" * 40 + "1",
    "((((9**20)**20)**20)**20)**20",
    "9**9**9**9",
    "((x+1)**20+y)**20",
    "1/0",
    "x/(x-x)",
    "(" * 30 + "x" + ")**20" * 30,
    "+-" * 900 + "1",
    "Q " * 900,
    "Q\n" * 900,
    "1" * 150 + "+" + "2" * 150 + "i",
    "",
    "9" * 2000,
    "1" * 199 + "e20",
    "1e99999",
    "-" * 2000,
    "1," * 1000,
    "1 " * 1000,
    "," * 2000,
    "[" * 2000,
    "[[" + "1," * 900 + "]]",
    "(" * 2000,
    "(" * 300 + "P" + ")" * 300,
    "¬" * 600 + "P",
    "P" + "↔Q" * 300,
    "P" + "→Q" * 300,
    "(P∧" * 30 + "Q" + ")" * 30,
    "$" * 2000,
    r"\frac{" + "1" * 1900 + "}{1}",
    "1/" + " " * 1900,
    "٣",
    "१२",
    "1_000",
    "nan",
    "inf",
    "\ud800",
    "ſ" * 600,
    "__import__('os')",
]


def task(rule: str, truth: str, *, partial: bool = False) -> Task:
    return Task(SourceName("test"), 0, "?", rule, truth, partial)


def reward(rule: str, answer: str, truth: str, *, partial: bool = False) -> float:
    return RULES[rule](answer, truth, partial)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("so <answer> 7 </answer>", "7"),
        ("<answer>1</answer> no, <answer>2</answer>.", "2"),
        ("<answer>1</answer> no, <answer>2", "1"),
        ("<answer><answer>5</answer>", "5"),
        ("<answer>1</answer></answer>", "1"),
        ("<answer>a\nb</answer>", "a\nb"),
        ("<answer></answer>", ""),
        ("</answer><answer>", None),
        ("<answer>7", None),
        ("7</answer>", None),
        ("<ANSWER>7</ANSWER>", None),
        ("7", None),
        ("", None),
        (f"<answer>{'x' * LIMIT_BYTES}</answer>", "x" * LIMIT_BYTES),
        (f"<answer>{'x' * (LIMIT_BYTES + 1)}</answer>", None),
        (f"<answer>{'é' * 1001}</answer>", None),
    ],
)
def test_the_last_closed_pair_of_tags_holds_the_answer(text: str, answer: str | None) -> None:
    assert extract(text) == answer


@pytest.mark.parametrize(
    ("rule", "truth", "right", "wrong"),
    [
        ("text", "a  b", ["a  b", " a  b\n"], ["a b", "A  b", ""]),
        ("text", "", [], ["", " "]),
        (
            "word",
            "Monday",
            ["monday", "MONDAY.", '"Monday"', "**Monday**", " monday! "],
            ["Mon", "on Monday", ""],
        ),
        ("word", "-1", ["-1", "-1."], ["1", "- 1"]),
        ("word", ".", [], [".", ""]),
        (
            "number",
            "7",
            ["7", "+7", "007", "7.0", "7.", "70e-1", "0.7E+1"],
            ["-7", "7.01", "7 apples", "7%", ""],
        ),
        ("number", "1234.5", ["1,234.5", "1234.50"], ["12,34.5", "1,2345", "1 234.5", ",234.5"]),
        ("number", "0", ["-0", "0.00", ".0"], [".", "+", "e1", "1e-20", "nan", "0x0", "0_0", "٠"]),
        ("near", "3.1416 0.001", ["3.1416", "3.142", "3.1406"], ["3.1427", "3.14", "3.1416 0.001", ""]),
        ("near", "3.1416", [], ["3.1416"]),
        (
            "fraction",
            r"$\frac{2}{3}$",
            ["2/3", "$2/3$", r"\frac{2}{3}", r"$\dfrac{2}{3}$", "2 / 3", r"\frac { 2 } { 3 }"],
            ["4/6", "3/2", "-2/3", "0.667", "2/3/1", "2/0", r"\frac{4}{6}", "2", ""],
        ),
        ("fraction", "-6/8", ["-3/4", r"-\frac{3}{4}"], ["-6/8", "3/4"]),
        ("fraction", "3/3", ["1", "1/1"], ["3/3", "1.0"]),
        ("digits", "1f", ["1f", "1F", "001f"], ["0x1f", "1", "f1", "-1f", "1f.", "1 f", ""]),
        ("digits", "0", ["0", "000"], ["", "00a", "-0"]),
        (
            "matrix",
            "1 2\n3 4",
            ["1 2\n3 4", "1, 2\n3, 4", "[[1, 2], [3, 4]]", "[[1 2]\n [3 4]]", "1 2 \n\n 3 4.0", "1 2; 3 4"],
            ["1 2 3 4", "1 2\n3 5", "1 2\n3", "1 2\n3 4\n5", "1 2\n3 x", ""],
        ),
        ("matrix", "1 2 3", ["1 2 3", "[1, 2, 3]", "1,2,3"], ["1\n2\n3", "123", "1 2"]),
        ("matrix", "1 x", [], ["1 x"]),
        (
            "expression",
            "(9 - 5)*(8 - 2)",
            ["(9 - 5)*(8 - 2)", "(8-2) * (9-5)", "-(5-9)*(8-2)", "8+9+5+2"],
            ["24", "8*(5 - 2)", "(9-5)*(8-2)+0", "(9-5)*(8-2)*1", "9 5 8 2", "x", ""],
        ),
        (
            "polynomial",
            "6*x**2 - 54",
            ["6*x**2 - 54", "6*(x-3)*(x+3)", "-54+6*x^2", "x*x*6-50-4", "(12*x**2 - 108)/2"],
            ["6*x**2", "6*y**2 - 54", "6x**2 - 54", "x**-2", "x**x", "x**21", "6*x**2 - 54 = 0", ""],
        ),
        (
            "integral",
            "3*X**3/2 - X + C",
            ["3*X**3/2 - X + C", "1.5*X**3 - X", "X*(3*X**2/2 - 1) + 17"],
            ["3*X**3/2", "C", "0", "3*x**3/2 - x + C", "3*X**3/2 - X + C*X", ""],
        ),
        ("integral", "C", [], ["C", "0"]),
        (
            "complex_number",
            "3.0 - 2.5i",
            ["3.0 - 2.5i", "3-2.5i", "3.00 -2.50i"],
            ["3.0 + 2.5i", "3", "-2.5i", "nan", "nan + nani", "3.0 - 2.5", "i", ""],
        ),
        ("complex_number", "-2.0i", ["-2i", "0 - 2i"], ["2i", "-2"]),
        ("complex_number", "7.00", ["7", "7 + 0i"], ["7i", ""]),
        (
            "queens",
            "_ Q _ _\n_ _ _ _\n_ _ _ _\n_ _ _ _\n\n_ Q _ _\n_ _ _ Q\nQ _ _ _\n_ _ Q _",
            ["_ Q _ _\n_ _ _ Q\nQ _ _ _\n_ _ Q _", " _ Q _ _\n _ _ _ Q\n Q _ _ _\n _ _ Q _ "],
            [
                "_ _ Q _\nQ _ _ _\n_ _ _ Q\n_ Q _ _",  # the one that was there has moved
                "_ Q _ _\nQ _ _ _\n_ _ _ Q\n_ _ Q _",  # two on a diagonal
                "_ Q _ _\n_ _ _ Q\nQ _ _ _",
                "_Q__\n___Q\nQ___\n__Q_",
                "[['_', 'Q', '_', '_']]",
                "",
            ],
        ),
    ],
)
def test_what_each_rule_pays_for(rule: str, truth: str, right: list[str], wrong: list[str]) -> None:
    assert {answer: reward(rule, answer, truth) for answer in right} == dict.fromkeys(right, 1.0)
    assert {answer: reward(rule, answer, truth) for answer in wrong} == dict.fromkeys(wrong, 0.0)


@pytest.mark.parametrize(
    ("premises", "conclusion", "pays"),
    [
        ("(P → Q)\nP", "Q", True),
        ("(P → Q)\nP", "P ∧ Q", True),
        ("(P → Q)\nP", "((((Q))))", True),
        ("(P → Q)\nP", "¬¬Q", True),
        ("(P → Q)\nP", "P", True),  # a repeated premise
        ("(P → Q)\nP", "¬Q", False),
        ("(P → Q)\nP", "Q ∨ ¬Q", False),  # true anyway
        ("(P → Q)\nP", "Q ∨ S", False),  # S is nobody's
        ("(P → Q)\nP", "q", False),
        ("(P → Q)\nP", "P → Q → P → Q", False),  # groups to the right, and is then true anyway
        ("(P ↔ Q)\n¬P", "¬Q", True),
        ("(P ∨ Q)\n¬P", "Q", True),
        ("P ∨ Q ∧ R", "P ∨ Q", True),  # ∧ binds more tightly than ∨
        ("P ∨ Q ∧ R", "R", False),
        ("P ∧ Q ↔ R\nR", "P", True),
        ("P\n¬P", "P ∧ ¬P", True),  # premises that contradict each other: only saying so is paid
        ("P\n¬P", "P", False),
        ("P", "", False),
        ("P", "()", False),
        ("P", "(P", False),
        ("P", "P)", False),
        ("P", "P P", False),
        ("P", "P ∨", False),
        ("P", "P.", False),
        ("", "P", False),
        ("P →", "P", False),
        ("\n".join("ABCDEFGHI"), "A", False),  # more letters than are looked at
    ],
)
def test_a_conclusion_must_follow_and_say_something(premises: str, conclusion: str, pays: bool) -> None:
    assert reward("logic", conclusion, premises) == float(pays)


def test_partial_credit_is_paid_only_where_asked_for_and_only_for_the_right_shape() -> None:
    assert reward("matrix", "1 2\n3 5", "1 2\n3 4") == 0.0
    assert reward("matrix", "1 2\n3 5", "1 2\n3 4", partial=True) == 0.75
    assert reward("matrix", "1 2 3 4", "1 2\n3 4", partial=True) == 0.0
    assert reward("matrix", "", "", partial=True) == 0.0


def test_verify_scores_each_text_and_pays_nothing_without_tags() -> None:
    texts = ["<answer>7</answer>", "7", "<answer>8</answer>", "<answer>8</answer> wait <answer>7.0</answer>"]
    assert verify(task("number", "7"), texts) == (1.0, 0.0, 0.0, 1.0)
    assert verify(task("number", "7"), []) == ()


def test_every_rule_pays_the_right_answer() -> None:
    assert TRUTHS.keys() == RULES.keys()
    for rule, truth in TRUTHS.items():
        assert reward(rule, right_answer(rule, truth), truth) == 1.0


@pytest.mark.parametrize("rule", RULES)
def test_no_hostile_answer_or_truth_raises_or_takes_long(rule: str) -> None:
    for text in HOSTILE:
        for answer, truth in ((text, TRUTHS[rule]), (TRUTHS[rule], text), (text, text)):
            started = time.process_time()
            assert 0.0 <= reward(rule, answer, truth, partial=True) <= 1.0
            assert time.process_time() - started < 0.05, (rule, answer[:20], truth[:20])


SYMBOLS = st.text(alphabet="0123456789+-.,eE/[]();{}$\\frac PQ¬∧∨→↔\n <>answer", max_size=200)


@settings(deadline=None)
@given(st.sampled_from(sorted(RULES)), st.one_of(SYMBOLS, st.text()), st.booleans())
def test_any_text_gets_a_reward_between_0_and_1(rule: str, text: str, partial: bool) -> None:
    assert 0.0 <= reward(rule, text, TRUTHS[rule], partial=partial) <= 1.0
    assert 0.0 <= reward(rule, text, text, partial=partial) <= 1.0


@settings(deadline=None)
@given(st.text())
def test_an_answer_is_found_as_it_was_put(answer: str) -> None:
    if "<answer>" not in answer and "</answer>" not in answer:
        assert extract(f"thinking <answer>{answer}</answer> done") == answer.strip()


@settings(deadline=None)
@given(st.decimals(allow_nan=False, allow_infinity=False, places=4))
def test_numbers_are_read_exactly(value: object) -> None:
    assert parse_number(f"{value:f}") == value
    assert parse_number(f"{value:,f}") == value


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(), min_size=1, max_size=5), min_size=1, max_size=5))
def test_a_matrix_is_known_in_every_writing(rows: list[list[int]]) -> None:
    truth = "\n".join(" ".join(map(str, row)) for row in rows)
    assert reward("matrix", str(rows), truth) == 1.0
    rows[-1][-1] += 1
    assert reward("matrix", str(rows), truth) == 0.0
