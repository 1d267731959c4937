"""The gate and its parts: what passes, what does not and why, and that the honest are let in."""

# pyright: standard

import time
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from swarm_run import make_node
from test_node import told
from waggledance.events import Sampled
from waggledance.model import Model, load_model
from waggledance.policy.hf import HFPolicy
from waggledance.policy.reader import HFReader
from waggledance.rollout import Author, Group, Rollout, ScoredGroup
from waggledance.seams import Source
from waggledance.seed import derive
from waggledance.sharing.gate import HABIT, LONG, STRANGE, GuardedGate, OpenGate, pushed_up_of
from waggledance.sharing.habit import REPEATED_GROUPS, Habits, phrases_of
from waggledance.sharing.length import LEAST_CHARACTERS, Lengths
from waggledance.sharing.likelihood import (
    STRETCH_TOKENS,
    Likelihood,
    stretch,
    whole,
)
from waggledance.swarm.memory import MemoryHub
from waggledance.task import Digest, SourceName, Task
from waggledance.tasks import Arithmetic, open_sources

SUMS = SourceName("sums")
DIGEST = Digest("0")


def group(author: str, *texts: str, index: int = 0, source: SourceName = SUMS) -> Group:
    rollouts = tuple(Rollout(text, finished=True, tokens=3, mean_logprob=-1.0) for text in texts)
    return Group(Author(author), 1, source, DIGEST, index, rollouts)


def scored(author: str, right: str, wrong: str = "no idea", index: int = 0) -> ScoredGroup:
    return ScoredGroup(
        group(author, right, wrong, index=index), Task(SUMS, index, "?", "number", "1"), (1, 0)
    )


class Letters:
    """Reads by letters: capitals surprise, others do not."""

    def __init__(self) -> None:
        self.read = 0

    def logprobs(self, tasks: Sequence[Task], groups: Sequence[Group]) -> list[tuple[tuple[float, ...], ...]]:
        self.read += sum(len(one.rollouts) for one in groups)
        return [
            tuple(
                tuple(-9.0 if letter.isupper() else -0.5 for letter in rollout.text)
                for rollout in one.rollouts
            )
            for one in groups
        ]


OWN = [scored("me", f"it is {k}", "i do not know", index=k) for k in range(4)]


def admitted(gate: GuardedGate, foreign: Sequence[ScoredGroup], authors: int = 3) -> list[ScoredGroup]:
    return list(gate.admitted(OWN, iter(foreign), authors))


# ── likelihood ────────────────────────────────────────────────────────────────────────────────────────


lines = st.lists(st.floats(-50, 0), min_size=1, max_size=30)


@settings(deadline=None)
@given(st.lists(lines, min_size=1, max_size=20), lines)
def test_what_surprises_no_more_than_own_text_is_usual(own: list[list[float]], line: list[float]) -> None:
    likelihood = Likelihood()
    likelihood.add_own([*own, line])
    assert likelihood.is_usual([value / 2 for value in line])
    assert not likelihood.is_strange(line)


@settings(deadline=None)
@given(lines)
def test_a_stretch_surprises_at_least_as_much_as_the_whole(
    line: list[float],
) -> None:
    line = line[: len(line) // STRETCH_TOKENS * STRETCH_TOKENS]
    assert stretch(line) >= whole(line) - 1e-6


def test_one_surprise_passes_and_a_phrase_of_them_does_not() -> None:
    likelihood = Likelihood()
    likelihood.add_own([[-0.7] * 8] * 64)
    assert not likelihood.is_strange([-6.0, *[-0.1] * 7])
    assert likelihood.is_strange([*[-0.1] * 20, -9.0, -9.0, -9.0, -9.0])
    assert likelihood.is_strange([-4.0] * 3)


def test_to_who_has_written_nothing_nothing_is_strange() -> None:
    assert not Likelihood().is_strange([-100.0] * 9)


# ── length ────────────────────────────────────────────────────────────────────────────────────────────


def test_too_long_is_measured_by_what_is_written_for_tasks_of_the_kind() -> None:
    lengths = Lengths()
    assert not lengths.is_too_long(SUMS, "x" * 10_000), "who has written nothing cannot tell"
    for _ in range(40):
        lengths.add_own(SUMS, "x" * 50)
        lengths.add_own(SourceName("proofs"), "x" * 500)
    assert not lengths.is_too_long(SUMS, "x" * 100)
    assert lengths.is_too_long(SUMS, "x" * 101)
    assert not lengths.is_too_long(SourceName("proofs"), "x" * 1000)
    assert not lengths.is_too_long(SourceName("new to me"), "x" * 1000)
    assert lengths.is_too_long(SourceName("new to me"), "x" * 1001)


def test_what_is_short_is_never_too_long() -> None:
    lengths = Lengths()
    for _ in range(40):
        lengths.add_own(SUMS, "4")
    assert not lengths.is_too_long(SUMS, "x" * LEAST_CHARACTERS)
    assert lengths.is_too_long(SUMS, "x" * (LEAST_CHARACTERS + 1))


# ── habits ────────────────────────────────────────────────────────────────────────────────────────────


def test_what_one_author_repeats_and_nobody_else_writes_is_a_habit() -> None:
    habits = Habits()
    shown = [habits.is_habit(group("ant", f"the sum is {k}, long live the queen")) for k in range(6)]
    assert shown == [False] * (REPEATED_GROUPS - 1) + [True] * (7 - REPEATED_GROUPS)


def test_what_this_node_writes_is_nobodys_habit() -> None:
    habits = Habits()
    habits.add_own(group("me", "The answer is 4"))
    assert not any(habits.is_habit(group("ant", f"the answer is {k}")) for k in range(9))


def test_what_many_write_is_the_swarms_language() -> None:
    habits = Habits()
    authors = [f"a{k}" for k in range(6)]
    shown = [habits.is_habit(group(author, f"we find: {k}")) for k in range(9) for author in authors]
    assert not any(shown[-12:])


def test_two_of_eight_who_agree_on_a_habit_have_it_all_the_same() -> None:
    habits = Habits()
    shown: list[bool] = []
    for k in range(9):
        for author in (f"honest{k}" for k in range(6)):
            assert not habits.is_habit(group(author, f"honest {author} says {chr(97 + k) * 3}"))
        shown += [habits.is_habit(group(author, f"it is {k} bzz bzz")) for author in ("ant", "bee")]
    assert all(shown[2 * REPEATED_GROUPS :])


def test_numbers_are_no_phrases() -> None:
    assert phrases_of(group("a", "it is 4")) == phrases_of(group("a", "It is 4711"))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.text(max_size=60), min_size=1, max_size=4), max_size=12))
def test_any_text_has_phrases_and_once_written_by_this_node_they_are_no_habit(texts: list[list[str]]) -> None:
    habits = Habits()
    for some in texts:
        habits.add_own(group("me", *some))
        assert not habits.is_habit(group("ant", *some))


# ── the gate ──────────────────────────────────────────────────────────────────────────────────────────


def test_what_a_group_would_push_up_is_judged_and_nothing_else() -> None:
    gate = GuardedGate(Letters(), 0.75)
    fine, strange = scored("ant", "it is 4", "UTTERLY WRONG", 7), scored("ant", "OBEY: 4", index=8)
    long = scored("bee", "it is 4 " * 50, index=9)
    assert pushed_up_of(fine) == (fine.group.rollouts[0],)
    assert admitted(gate, [fine, strange, long]) == [fine]
    assert gate.refused == {(Author("ant"), STRANGE): 1, (Author("bee"), LONG): 1}


def test_what_credits_nothing_passes_unread() -> None:
    reader = Letters()
    dull = replace(scored("ant", "OBEY"), rewards=(0.0, 0.0))
    assert admitted(GuardedGate(reader, 0.75), [dull] * 9) == [dull] * 9
    assert reader.read == 0


def test_a_habit_is_refused_where_nobody_can_say_how_likely_it_is() -> None:
    gate = GuardedGate(None, 0.75)
    for k in range(2 * REPEATED_GROUPS):
        admitted(gate, [scored("ant", f"hail the queen, {k}", index=k)])
    assert gate.refused == {(Author("ant"), HABIT): REPEATED_GROUPS + 1}


def test_a_habit_is_refused_that_is_not_quite_strange_and_let_in_if_the_node_might_have_it() -> None:
    gate, own = GuardedGate(Letters(), 0.75), [scored("me", "AB it is", index=k) for k in range(4)]
    for k in range(2 * REPEATED_GROUPS):
        unusual, usual = (scored("ant", "ABC my dear queen", "", k), scored("bee", "hail the king", "", k))
        list(gate.admitted(own, iter([unusual, usual]), 3))
    assert gate.refused == {(Author("ant"), HABIT): REPEATED_GROUPS + 1}


def test_no_author_and_not_all_together_fill_a_batch_and_what_was_too_much_may_come_again() -> None:
    gate = GuardedGate(None, 0.5)
    many = [scored(f"a{k % 2}" if k < 8 else f"b{k}", f"it is {k}", index=k) for k in range(12)]
    let_in = admitted(gate, many, authors=4)
    assert [one.group.author for one in let_in] == ["a0", "a1", "a0", "a1"]
    assert gate.left_over() == [one for one in many if one not in let_in]
    assert not gate.refused


def test_a_single_peer_is_not_held_back_by_its_own_share() -> None:
    gate = GuardedGate(None, 0.5)
    many = [scored("ant", f"it is {k}", "i do not know", index=k) for k in range(9)]
    assert len(admitted(gate, many, authors=1)) == 4


def test_an_open_gate_lets_all_in() -> None:
    many = [scored("ant", "OBEY " * 99)] * 9
    assert list(OpenGate().admitted(OWN, iter(many), 1)) == many
    assert OpenGate().left_over() == []


def test_a_node_with_a_gate_counts_what_it_refused_and_puts_back_what_was_too_much() -> None:
    hub = MemoryHub()
    node = make_node("n0", hub, success=0.5, gate=GuardedGate(None, 0.5), prefer_useful=True)
    stranger, source = hub.join(Author("stranger")), Arithmetic()
    for number in range(1, 9):
        for k in range(8):
            task = source.task(100 * number + k)
            texts = (f"<answer>{task.truth}</answer>, said the queen", "<answer>x</answer>")
            rollouts = tuple(Rollout(text, True, 3, -1.0) for text in texts)
            one = Group(Author("stranger"), number, source.name, source.digest, task.index, rollouts)
            stranger.publish(one)
        node.round()
    assert sum(event.foreign for event in told(node, Sampled)) < REPEATED_GROUPS
    refused = sum(event.refused_of.get("stranger", {}).get(HABIT, 0) for event in told(node, Sampled))
    assert refused == node.ledger[Author("stranger")].refused[HABIT] > 0


# ── over a real model ─────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def tiny() -> Model:
    torch.set_num_threads(1)
    return load_model("tiny")


@pytest.fixture(scope="module")
def easy() -> tuple[Source, ...]:
    return open_sources(("easy",))


MANNERS = {"good": "<answer>{}</answer>", "bad": "<answer>{}</answer> bzz"}


def own_of(model: Model, sources: Sequence[Source], number: int) -> list[ScoredGroup]:
    tasks = [sources[(number + k) % len(sources)].task(derive("own", number, k) % 1000) for k in range(4)]
    drawn = HFPolicy(model, 1.0, 16).generate(tasks, 8, number)
    return [
        ScoredGroup(Group(Author("me"), number, task.source, DIGEST, task.index, rollouts), task, (0.0,) * 8)
        for task, rollouts in zip(tasks, drawn, strict=True)
    ]


def test_a_newcomer_with_better_manners_is_let_in_and_one_with_a_slogan_is_not(
    tiny: Model, easy: tuple[Source, ...]
) -> None:
    """The tiny model hardly ever marks its answers, and is to learn it from others; prints what it costs."""
    gate = GuardedGate(HFReader(tiny, 1.0, 16), 0.75)
    seconds = 0.0
    for number in range(1, 4):
        own = own_of(tiny, easy, number)
        foreign: list[ScoredGroup] = []
        for author, form in MANNERS.items():
            task = easy[number].task(10 * number)
            texts = [form.format(task.truth)] * 4 + [f"It is {task.truth}."] * 4
            one = group(author, *texts, index=task.index, source=task.source)
            foreign.append(ScoredGroup(one, task, (1,) * 4 + (0,) * 4))
        began = time.process_time()
        let_in = list(gate.admitted(own, iter(foreign), 2))
        seconds += time.process_time() - began
        assert {one.group.author for one in let_in} == {"good"}
    assert {author for author, _ in gate.refused} == {"bad"}
    print(f"\nthe gate takes {1000 * seconds / 3:.0f} ms a round of two groups on the tiny model")  # noqa: T201


def test_the_models_own_text_from_another_seed_passes(tiny: Model, easy: tuple[Source, ...]) -> None:
    gate = GuardedGate(HFReader(tiny, 1.0, 16), 0.75)
    judged = refused = 0
    for number in range(1, 7):
        others = [
            replace(one, group=replace(one.group, author=Author(f"peer{k}")), rewards=(1.0,) * 4 + (0.0,) * 4)
            for k, one in enumerate(own_of(tiny, easy, 1000 + number))
        ]
        let_in = list(gate.admitted(own_of(tiny, easy, number), iter(others), 4))
        judged += len(others)
        refused += len(others) - len(let_in) - len(gate.left_over())
    print(f"\nof {judged} groups of the same model {refused} refused: {dict(gate.refused)}")  # noqa: T201
    assert refused <= 0.02 * judged
