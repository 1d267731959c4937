"""Sources: the same task everywhere, held-out questions apart, and errors that say which line."""

import functools
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reasoning_gym.factory import create_dataset  # pyright: ignore

from waggledance.errors import MissingError, TaskError, WaggleError
from waggledance.seams import Source
from waggledance.tasks import SETS, Arithmetic, Jsonl, open_sources
from waggledance.tasks.child import Child
from waggledance.tasks.generator import Generator, _divisors  # pyright: ignore[reportPrivateUsage]
from waggledance.tasks.recipes import RECIPES, SCORER, SEED
from waggledance.tasks.split import SIZE, is_held_out
from waggledance.verify import RULES, right_answer, verify

IN_SETS = [name for names in SETS.values() for name in names]


@functools.cache
def opened(word: str) -> tuple[Source, ...]:
    """Sources with one child among them: starting it takes a second."""
    return open_sources([word])


@functools.cache
def generator() -> Generator:
    return Generator()


@functools.cache
def child() -> Child:
    return Child()


def write(folder: Path, *lines: str) -> Path:
    path = folder / "mine.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def line(question: str, answer: str = "yes", **more: str) -> str:
    return json.dumps({"question": question, "answer": answer, **more})


# ── ReasoningGYM ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_makes_tasks_whose_right_answer_its_rule_pays(name: str) -> None:
    rule = RECIPES[name].rule
    if rule == SCORER:
        pytest.skip("judged in the cage: tests/test_judge.py")
    for index in (0, 1, 2, SIZE - 1, SIZE):
        item = child().make(name, index)
        assert RULES[rule](right_answer(rule, item.truth), item.truth, False) == 1.0


@pytest.mark.parametrize("name", IN_SETS)
def test_reasoning_gym_agrees_about_the_right_answer(name: str) -> None:
    recipe = RECIPES[name]
    parameters: dict[str, Any] = dict(recipe.parameters)
    dataset: Any = create_dataset(recipe.dataset, seed=SEED, **parameters)
    for index in range(4):
        entry: dict[str, Any] = dataset[index]
        truth = recipe.truth(entry)
        assert dataset.score_answer(right_answer(recipe.rule, truth), entry) == 1.0
        if entry["answer"] is not None:
            assert right_answer(recipe.rule, truth) == entry["answer"]


def test_the_sets_hold_what_the_paper_and_the_demo_need() -> None:
    assert [source.name for source in opened("paper")] == list(SETS["paper"])
    assert len(SETS["paper"]) == 9
    assert [source.name for source in opened("easy")] == list(SETS["easy"])


@pytest.mark.parametrize("name", IN_SETS)
def test_no_held_out_question_is_ever_trained_on(name: str) -> None:
    trained = {generator().make(name, index).question for index in range(60)}
    held_out = {generator().make(name, SIZE + index).question for index in range(15)}
    assert not trained & held_out
    assert all(map(is_held_out, held_out))
    assert not any(map(is_held_out, trained))


def test_a_source_answers_by_index_with_tasks_it_verifies() -> None:
    source = opened("easy")[0]
    task = source.task(17)
    assert (task.source, task.index, task.rule, task.partial) == (source.name, 17, "number", False)
    assert task == source.task(17) != source.task(18)
    assert verify(task, [f"<answer>{task.truth}</answer>", task.truth]) == (1.0, 0.0)


@pytest.mark.parametrize("index", [-1, 2 * SIZE, 10**30])
def test_an_index_from_afar_is_an_error_and_the_next_task_is_made(index: int) -> None:
    source = opened("easy")[0]
    with pytest.raises(TaskError, match=f"easy:chain_sum has no task {index}"):
        generator().make("easy:chain_sum", index)
    with pytest.raises(TaskError, match="has no task"):
        source.task(index)
    assert source.task(0).question


def digests_of(words: Sequence[str], hash_seed: str) -> dict[str, str]:
    program = (
        "import json, sys; from waggledance.tasks import open_sources; "
        "print(json.dumps({s.name: s.digest for s in open_sources(sys.argv[1:])}))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, *words],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        check=True,
    )
    assert run.stderr == b""
    return json.loads(run.stdout)  # and nothing else was printed: the dataset bf prints dots


def test_digests_do_not_depend_on_this_interpreters_string_hashes() -> None:
    # The items of isomorphic_strings and ransom_note do, where nothing is done about it.
    words = ["gym:isomorphic_strings", "gym:ransom_note", "paper:bf", "easy:gcd", "arithmetic"]
    fixed = digests_of(words, "0")
    assert fixed.keys() == set(words)
    assert all(len(digest) == 16 for digest in fixed.values())
    assert digests_of(words, "12345") == fixed


def test_importing_the_sources_does_not_import_reasoning_gym() -> None:
    program = (
        "import sys, waggledance.tasks; sys.exit('reasoning_gym' in sys.modules or 'torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_what_would_take_minutes_or_divide_by_zero_is_passed_over() -> None:
    # Raw items of these numbers do; found by trying half a million.
    for index in (28_806, 56_107, 75_563, 122_425):
        assert generator().make("paper:basic_arithmetic", index).truth


@pytest.mark.parametrize(
    ("left", "right", "divisors"),
    [
        (12, 0, [1, 12, 2, 6, 3, 4]),
        (-36, 24, [1, 12, 2, 6, 3, 4]),
        (9, 0, [1, 9, 3]),
        (1, 7, [1]),
        (0, 0, []),
    ],
)
def test_divisors_come_in_reasoning_gyms_order(left: int, right: int, divisors: list[int]) -> None:
    assert _divisors(left, right) == divisors


def test_the_answer_to_one_dataset_is_not_rounded_for_another() -> None:
    fresh = Generator().make("gym:decimal_chain_sum", 3)
    used = Generator()
    used.make("paper:decimal_arithmetic", 0)  # sets its thread's decimal precision to 5
    assert used.make("gym:decimal_chain_sum", 3) == fresh


# ── the child ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_child_that_is_late_is_an_error_and_the_next_item_starts_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("waggledance.tasks.child.START_LIMIT_S", 0.0)
    hurried = Child(limit_s=0.01)  # too short for Python to start
    with pytest.raises(TaskError, match=r"paper:bf 5: the task generator .* within 0.01 s"):
        hurried.make("paper:bf", 5)
    monkeypatch.setattr("waggledance.tasks.child.START_LIMIT_S", 60.0)
    hurried_no_more = hurried.make("paper:bf", 5)
    assert hurried_no_more == generator().make("paper:bf", 5)


def test_a_child_that_was_killed_is_an_error_that_names_the_item() -> None:
    mortal = Child()
    mortal.make("easy:gcd", 0)
    running = mortal._running  # pyright: ignore[reportPrivateUsage]
    assert running is not None
    running.kill()
    running.wait()
    with pytest.raises(TaskError, match="easy:gcd 1: the task generator ended"):
        mortal.make("easy:gcd", 1)


def test_the_child_ends_with_its_parent_however_that_ended() -> None:
    program = (
        "import os; from waggledance.tasks.child import Child; child = Child(); child.make('easy:gcd', 0);"
        "os.kill(os.getpid(), 9)"
    )
    # The child shares its parent's standard error: `run` returns when both have let go of it.
    run = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, timeout=30, check=False)
    assert (run.returncode, run.stderr) == (-9, b"")


# ── arithmetic ────────────────────────────────────────────────────────────────────────────────────────


@settings(deadline=None)
@given(st.integers(0, 2 * SIZE - 1), st.integers(1, 3), st.sampled_from(["+", "-", "*", "+-", "+-*"]))
def test_sums_add_up(index: int, digits: int, operators: str) -> None:
    source = Arithmetic(digits=digits, operators=operators)
    task = source.task(index)
    left, operator, right = task.question.removeprefix("What is ").removesuffix("?").split()
    assert operator in operators
    results = {"+": int(left) + int(right), "-": int(left) - int(right), "*": int(left) * int(right)}
    assert int(task.truth) == results[operator]
    assert verify(task, [f"<answer>{task.truth}</answer>", "<answer>no</answer>"]) == (1.0, 0.0)
    assert is_held_out(task.question) == (index >= source.size)


def test_other_sums_have_another_digest() -> None:
    assert Arithmetic().digest == Arithmetic().digest
    assert len({Arithmetic(digits=digits).digest for digits in (1, 2, 3)}) == 3


# ── jsonl ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_file_becomes_tasks_with_a_tenth_held_out(tmp_path: Path) -> None:
    path = write(tmp_path, *[line(f"Is {n} a number?", str(n), rule="number") for n in range(40)])
    source = Jsonl(path)
    assert source.name == "jsonl:mine.jsonl"
    assert source.size == 36
    trained = [source.task(index) for index in range(36)]
    held_out = [source.task(36 + index) for index in range(4)]
    assert len({task.question for task in trained + held_out}) == 40
    assert [int(task.truth) for task in trained] == sorted(int(task.truth) for task in trained)
    assert source.task(40).question == held_out[0].question  # over and over
    assert source.task(40).index == 40
    assert verify(trained[0], [f"<answer>{trained[0].truth}.0</answer>"]) == (1.0,)


@settings(deadline=None)
@given(st.data())
def test_neither_order_nor_repetition_moves_a_question_across(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("jsonl")
    lines = [line(f"q{n}") for n in range(25)]
    shuffled = data.draw(st.permutations(lines + lines[:7]))
    plain = Jsonl(write(folder, *lines))
    other = Jsonl(write(folder, *shuffled))
    held_out = {plain.task(plain.size + index).question for index in range(2)}
    assert {other.task(other.size + index).question for index in range(4)} == held_out
    assert {other.task(index).question for index in range(other.size)}.isdisjoint(held_out)


def test_the_digest_covers_every_line_and_not_the_place(tmp_path: Path) -> None:
    lines = [line(f"q{n}") for n in range(40)]
    (tmp_path / "elsewhere").mkdir()
    digest = Jsonl(write(tmp_path, *lines)).digest
    assert Jsonl(write(tmp_path / "elsewhere", *lines)).digest == digest
    for changed in range(40):
        other = [line(f"q{n}", "no" if n == changed else "yes") for n in range(40)]
        assert Jsonl(write(tmp_path, *other)).digest != digest


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ('{"question": "q"}', "missing required field `answer`"),
        ('{"question": "q", "answer": 5}', "Expected `str`, got `int`"),
        ('{"question": "q", "answer": "a", "answr": ""}', "unknown field `answr`"),
        ('{"question": "q", "answer": "a"', "truncated"),
        ("question,answer", "malformed"),
        ('["q", "a"]', "Expected `object`, got `array`"),
        (line("q", "a", rule="nunber"), "no rule is called 'nunber'; did you mean number?"),
        (line("q", "three", rule="number"), "the rule 'number' cannot read the answer 'three'"),
        (line("q", "7" * 3000), "the rule 'text' cannot read the answer"),
        (line("q", ""), "cannot read the answer ''"),
        (line("q", " ", rule="logic"), "cannot read the answer ' '"),
        (line("q", "P → P", rule="logic"), "cannot read the answer 'P → P'"),
        (line("q", "3.14", rule="near"), "cannot read the answer '3.14'"),
        (line(" "), "the question is empty"),
    ],
)
def test_a_bad_line_is_named_by_path_and_number(tmp_path: Path, second: str, message: str) -> None:
    path = write(tmp_path, line("first"), "", second, line("last"))
    with pytest.raises(TaskError) as caught:
        Jsonl(path)
    assert str(caught.value).startswith(f"{path}:3: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bytes_that_are_no_text_are_named_by_path_and_number(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_bytes(line("first").encode() + b'\n{"question": "\xff", "answer": "a"}\n')
    with pytest.raises(TaskError, match=r"mine\.jsonl:2: "):
        Jsonl(path)


@pytest.mark.parametrize("lines", [[], [""], [line("only")], [line("same"), line("same", "no")]])
def test_a_file_needs_one_question_to_train_on_and_one_to_hold_out(tmp_path: Path, lines: list[str]) -> None:
    with pytest.raises(TaskError, match="two different questions"):
        Jsonl(write(tmp_path, *lines))
    assert Jsonl(write(tmp_path, line("one"), line("two"))).size == 1


def test_a_file_that_is_not_there_is_missing(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match=r"nowhere\.jsonl: No such file"):
        Jsonl(tmp_path / "nowhere.jsonl")
    with pytest.raises(MissingError, match="directory"):
        Jsonl(tmp_path)


# ── words ─────────────────────────────────────────────────────────────────────────────────────────────


def test_words_name_sources_each_once(tmp_path: Path) -> None:
    path = write(tmp_path, line("one"), line("two"))
    words = ["easy:gcd", "arithmetic", f"jsonl:{path}", "gym:dice", "easy", "easy:gcd"]
    names = [source.name for source in open_sources(words)]
    assert names[:4] == ["easy:gcd", "arithmetic", "jsonl:mine.jsonl", "gym:dice"]
    assert sorted(names[4:]) == sorted(set(SETS["easy"]) - {"easy:gcd"})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no task source is named; name one or more of: paper, easy"),
        (["papr"], "no task source is called 'papr'; did you mean paper?"),
        (["chain_sum"], "did you mean easy:chain_sum?"),
        (["gym:dise"], "did you mean gym:dice?"),
        (["gym:countdwn"], "did you mean gym:countdown?"),
        (["gym:codeio"], "gym:codeio is refused: it differs from one process to the next"),
        (["jsonl:"], "no task source is called 'jsonl:'; "),
        (["../etc"], "no task source is called '../etc'; "),
    ],
)
def test_an_unknown_word_is_an_error_with_the_nearest_known(words: list[str], message: str) -> None:
    with pytest.raises(TaskError) as caught:
        open_sources(words)
    assert message in str(caught.value)


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    paths = [write(folder, line("one"), line("two")) for folder in (tmp_path, tmp_path / "elsewhere")]
    with pytest.raises(WaggleError, match=r"there is a source jsonl:mine\.jsonl already"):
        open_sources([f"jsonl:{path}" for path in paths])
