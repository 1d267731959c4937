"""ReasoningGYM's scorers in the cage: right answers are paid, and no answer does anything but earn or not."""

import time
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from waggledance.seams import Failure, Source
from waggledance.task import SourceName, Task
from waggledance.tasks import open_sources
from waggledance.tasks.child import Child
from waggledance.tasks.judge import WARDEN, scored
from waggledance.tasks.recipes import GYM, REFUSED, SCORER
from waggledance.verify import is_modest, right_answer
from waggledance.verify.cage import PATIENCE, Cage, Terms

Record = Callable[[str, object], None]
QUICK = ("gym:knights_knaves", "gym:survo")
SCORED = tuple(f"gym:{name}" for name, recipe in GYM.items() if recipe.rule == SCORER)
MANY_RIGHT = {"boxnet", "graph_color", "rubiks_cube", "rush_hour"}
"""They name no right answer."""
LONG = {"tower_of_hanoi"}
"""Some of its right answers are longer than an answer may be."""
LIMIT_S = 0.5
SLACK_S = 1.0
"""For a busy machine, which may also keep a worker waiting for several limits."""
NESTED = [f"{opened * 900}{closed * 900}" for opened, closed in ("[]", "()", "{}")]


MAKER = Child()
"""One for all: starting it takes a second."""


def opened(word: str) -> tuple[Source, ...]:
    return open_sources([word], MAKER)


def hostile(folder: Path) -> list[str]:
    """Files, sockets, programs, endless loops, memory, huge numbers, deep nesting, control characters."""
    there = f"{folder}/was-here"
    return [
        f"__import__('os').system('touch {there}')",
        f"__import__('pathlib').Path('{there}').touch()",
        f"open('{there}', 'w')",
        f"[open('{there}', 'w').write('x')]",
        f"__import__('subprocess').run(['touch', '{there}'])",
        "__import__('os').fork()",
        "__import__('os').kill(__import__('os').getppid(), 9)",
        "__import__('socket').create_connection(('127.0.0.1', 9))",
        "[x for x in iter(int, 1)]",
        "all(True for _ in iter(int, 1))",
        "'x' * 10**12",
        "[0] * 10**10",
        "9**9**9",
        "9**9**9**9",
        "factorial(10**7)",
        "2**(10**9) % 7",
        "1e999999999",
        "1" * 1900,
        "1/" * 900 + "1",
        "-" * 1900 + "1",
        "((x+1)**200*(x+2)**200)",
        "integrate(exp(x**x), x)",
        *NESTED,
        '{"a":' * 300 + "1" + "}" * 300,
        "\x00\x1b[2J\x07\u202e\u2066",
        "\ud800",
        "nan",
        "inf",
        "R U R' U' " * 180,
        "A → B → C → " * 150,
        "Move disk 1 from Peg 1 to Peg 2\n" * 60,
        "P ∧ " * 450 + "P",
        "0=0," * 400 + "0=0",
        "٣" * 500,
    ]


@pytest.fixture(scope="module")
def judged() -> Generator[Cage]:
    cage = Cage(Terms(limit_s=20.0), WARDEN, QUICK)
    yield cage
    cage.close()


def check_right_answers(cage: Cage, word: str) -> None:
    [source] = opened(word)
    tasks = [source.task(index) for index in (0, 1, 999_999, 1_000_003)]
    pairs = [
        (task, [f"<answer>{said}</answer>" for said in (task.truth, "no such answer")]) for task in tasks
    ]
    verdicts = cage.verify(pairs)
    if word.removeprefix("gym:") in MANY_RIGHT:
        assert {task.truth for task in tasks} == {""}
        assert verdicts == [(0.0, 0.0)] * len(tasks)
    else:
        fits = [len(task.truth) < 2000 for task in tasks]
        assert all(fits) or word.removeprefix("gym:") in LONG
        assert verdicts == [(float(fit), 0.0) for fit in fits]


@pytest.mark.parametrize("word", QUICK)
def test_a_scorer_pays_the_right_answer(judged: Cage, word: str) -> None:
    check_right_answers(judged, word)


def test_own_rules_are_judged_beside_scorers(judged: Cage) -> None:
    task = Task(SourceName("test"), 0, "?", "number", "7")
    assert judged.verify([(task, ["<answer>7.0</answer>", "<answer>8</answer>"])]) == [(1.0, 0.0)]


def test_each_call_to_a_scorer_has_a_worker_of_its_own(judged: Cage) -> None:
    """What one answer may have left behind in a scorer's modules, the next one does not meet."""
    [source] = opened("gym:survo")
    pair = (source.task(0), ["<answer>1</answer>"])
    judged.verify([pair])
    assert judged._worker is None  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    ("answer", "modest"),
    [
        ("0x1e45f", True),
        ("3.72e+20", True),
        ("x**3", True),
        ("1" * 200, True),
        ("1" * 201, False),
        ("1e300", False),
        ("9**99", False),
        ("9 ** ( 99", False),
        ("9^100", False),
    ],
)
def test_a_scorer_sees_no_immodest_number(answer: str, modest: bool) -> None:
    assert is_modest(answer) == modest


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_scorer_pays_the_right_answer_and_nothing_for_hostile_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Record
) -> None:
    monkeypatch.chdir(tmp_path)
    cage = Cage(Terms(limit_s=LIMIT_S), WARDEN, SCORED)
    slowest_s, failures, answers = 0.0, 0, 0
    try:
        for word in SCORED:
            check_right_answers(cage, word)
            [source] = opened(word)
            task = source.task(0)
            for payload in hostile(tmp_path):
                start = time.monotonic()
                [verdict] = cage.verify([(task, [f"<answer>{payload}</answer>"])])
                slowest_s = max(slowest_s, time.monotonic() - start)
                answers += 1
                failures += isinstance(verdict, Failure)
                assert isinstance(verdict, Failure) or verdict == (0.0,), (word, payload[:60])
    finally:
        cage.close()
    record_property(
        "hostile answers",
        f"{len(SCORED)} scorers, {answers} hostile answers: {failures} failures, slowest {slowest_s:.2f} s",
    )
    assert list(tmp_path.iterdir()) == []
    assert slowest_s < PATIENCE * LIMIT_S + SLACK_S


RUN_THE_ANSWER = ("string_insertion", "spiral_matrix", "binary_matrix", "n_queens", "countdown")


def check_raw(folder: Path, names: tuple[str, ...]) -> str:
    cage = Cage(Terms(limit_s=LIMIT_S), "raw_scorers", names)
    slowest_s, failures, answers = 0.0, 0, 0
    try:
        if not cage.fence.calls:
            pytest.skip("this system has no filter of system calls")
        for name in names:
            task = Task(SourceName(name), 0, "?", SCORER, "")
            for payload in hostile(folder):
                start = time.monotonic()
                [verdict] = cage.verify([(task, [payload])])
                slowest_s = max(slowest_s, time.monotonic() - start)
                answers += 1
                failures += isinstance(verdict, Failure)
    finally:
        cage.close()
    assert list(folder.iterdir()) == []
    assert slowest_s < PATIENCE * LIMIT_S + SLACK_S
    return f"{len(names)} scorers, {answers} hostile answers: {failures} failures, slowest {slowest_s:.2f} s"


@pytest.mark.slow
def test_the_cage_holds_a_scorer_that_runs_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    check_raw(tmp_path, RUN_THE_ANSWER[:1])


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_cage_holds_every_scorer_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Record
) -> None:
    """All of ReasoningGYM's, unguarded by rules and caps of ours: nothing happens outside."""
    monkeypatch.chdir(tmp_path)
    figures = check_raw(tmp_path, tuple(sorted({*GYM, *REFUSED} - {"composite"})))
    record_property("hostile answers, unguarded", figures)


def test_right_answers_are_known_to_the_table() -> None:
    assert {word.removeprefix("gym:") for word in SCORED} >= MANY_RIGHT | LONG
    assert scored(open_sources(["gym:survo", "arithmetic", "easy:gcd"])) == ["gym:survo"]
    assert right_answer(SCORER, "as it is") == "as it is"
