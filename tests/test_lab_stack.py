"""Stacked nodes against nodes apart: the same draws, the same lessons, the same weights to rounding."""

# pyright: standard

import copy
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from test_model import toy
from waggledance.errors import DivergedError, ModelError
from waggledance.lab.llama import shape_of
from waggledance.lab.stack import Stack, StackSettings
from waggledance.lab.thinkers import Asked
from waggledance.learner.grpo import GRPO, GRPOSettings
from waggledance.learner.loss import Clip
from waggledance.model import Model, load_model
from waggledance.policy.hf import HFPolicy
from waggledance.rollout import Author, Group, Rollout, ScoredGroup
from waggledance.task import Digest, SourceName, Task

TASKS_OF = (3, 1, 0, 2)
"""Tasks that each of the nodes asks in a round: they need not be as many."""
COMPLETIONS, TOKENS, RATE = 4, 10, 1e-3
CLIP = Clip(0.2, 0.28)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Small products are done soonest by one; two that share a core wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def settings(kl_weight: float = 0.0, epochs: int = 1, rows_at_once: int = 512) -> StackSettings:
    return StackSettings(1.0, TOKENS, RATE, CLIP, kl_weight, 1.0, epochs, 1, rows_at_once)


def task(number: int) -> Task:
    words = "What is the " + "next " * (number % 5) + f"number after {number}?"
    return Task(SourceName("toy"), number, words, "number", str(number + 1))


def scored(tasks: Sequence[Task], answers: Sequence[tuple[Rollout, ...]]) -> list[ScoredGroup]:
    """Pays texts of even length: a model that knows nothing is right now and then."""
    return [
        ScoredGroup(
            Group(Author("n"), 1, one.source, Digest("0"), one.index, rollouts),
            one,
            tuple(float(len(rollout.text) % 2 == 0) for rollout in rollouts),
        )
        for one, rollouts in zip(tasks, answers, strict=True)
    ]


def foreign(number: int) -> ScoredGroup:
    """Text only, by somebody else; one rollout fewer, and it counts half."""
    texts = ("seven", "", "no idea")
    rollouts = tuple(Rollout(text, bool(text), 5, -1.0) for text in texts)
    one = task(number)
    group = Group(Author("f"), 1, one.source, Digest("0"), one.index, rollouts)
    return ScoredGroup(group, one, (1.0, 0.0, 0.5), weight=0.5)


class Plain:
    def __init__(self, model: Model, kl_weight: float, epochs: int) -> None:
        self.model = replace(model, network=copy.deepcopy(model.network))
        self.policy = HFPolicy(self.model, 1.0, TOKENS)
        grpo = GRPOSettings(RATE, CLIP, kl_weight, 1.0, epochs, 1.0, TOKENS)
        self.learner = GRPO(self.model, grpo)


def distance(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    return sum(float((one[name] - other[name]).pow(2).sum()) for name in other) ** 0.5


@pytest.mark.parametrize(("kl_weight", "epochs"), [(0.0, 1), (0.02, 2)])
def test_stacked_nodes_do_what_nodes_apart_do(kl_weight: float, epochs: int, tmp_path: Path) -> None:
    start = toy(tmp_path)
    stack = Stack([start] * len(TASKS_OF), settings(kl_weight, epochs, rows_at_once=24), "cpu")
    apart = [Plain(start, kl_weight, epochs) for _ in TASKS_OF]
    draw = random.Random(1)
    for round_ in range(3):
        tasks = [[task(draw.randrange(99)) for _ in range(count)] for count in TASKS_OF]
        asked = [Asked(n, own, COMPLETIONS, 100 * round_ + n) for n, own in enumerate(tasks)]
        answers = stack.answer(asked)
        batches = {n: scored(tasks[n], answers[n]) for n in range(len(TASKS_OF))}
        batches[0].append(foreign(round_))
        batches[3].append(replace(foreign(round_), doubted=True))
        batches[2].append(replace(foreign(round_), rewards=(0.0, 0.0, 0.0)))
        lessons = stack.learn(batches)
        for n, plain in enumerate(apart):
            expected = plain.policy.generate(tasks[n], COMPLETIONS, 100 * round_ + n)
            assert [[r.token_ids for r in group] for group in answers[n]] == [
                [r.token_ids for r in group] for group in expected
            ]
            for group, other in zip(answers[n], expected, strict=True):
                for rollout, twin in zip(group, other, strict=True):
                    assert rollout == replace(twin, mean_logprob=rollout.mean_logprob)
                    assert rollout.mean_logprob == pytest.approx(twin.mean_logprob, abs=1e-4)
            lesson, twin = lessons[n], plain.learner.learn(batches[n])
            assert (lesson.groups, lesson.tokens) == (twin.groups, twin.tokens)
            for name in ("loss", "grad_norm", "kl", "clipped"):
                assert getattr(lesson, name) == pytest.approx(getattr(twin, name), rel=1e-3, abs=1e-4)
    for n, plain in enumerate(apart):
        weights = stack.state(n)
        moved = distance(plain.model.network.state_dict(), start.network.state_dict() | weights)
        walked = distance(weights, {name: start.network.state_dict()[name] for name in weights})
        assert moved <= 1e-3 * walked
        assert (walked > 0.1) == (n != 2)  # the third had nothing to learn from


def test_nodes_may_start_differently(tmp_path: Path) -> None:
    models = [toy(tmp_path / "a", seed=1), toy(tmp_path / "b", seed=2)]
    stack = Stack(models, settings(kl_weight=0.1), "cpu")
    asked = [Asked(n, [task(5)], COMPLETIONS, 7) for n in range(2)]
    answers = stack.answer(asked)
    for model, own in zip(models, answers, strict=True):
        expected = HFPolicy(model, 1.0, TOKENS).generate([task(5)], COMPLETIONS, 7)
        assert [r.token_ids for r in own[0]] == [r.token_ids for r in expected[0]]
    lessons = stack.learn({n: scored([task(5)], answers[n]) for n in range(2)})
    # Before the first step every node is where it started: no pull yet, on anybody.
    assert all(lesson.groups == 1 and abs(lesson.kl) < 1e-6 for lesson in lessons.values())


@pytest.mark.parametrize("kind", ["qwen2", "gpt2"])
def test_what_is_no_plain_llama_is_refused(kind: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be stacked; set stacked = false"):
        shape_of(toy(tmp_path, kind))


def test_the_shipped_model_stacks() -> None:
    model = load_model("tiny")
    stack = Stack([model], settings(), "cpu")
    own = [task(number) for number in range(3)]
    [answers] = stack.answer([Asked(0, own, COMPLETIONS, 1)])
    expected = HFPolicy(model, 1.0, TOKENS).generate(own, COMPLETIONS, 1)
    assert [[r.text for r in group] for group in answers] == [[r.text for r in group] for group in expected]
    state = model.network.state_dict()
    assert all(torch.equal(weight, state[name]) for name, weight in stack.state(0).items())


def test_a_step_that_would_destroy_a_model_is_not_made_and_two_end_it(tmp_path: Path) -> None:
    model = toy(tmp_path)
    stack = Stack([model, model], settings(), "cpu")
    before = model.network.state_dict()
    bad = replace(foreign(1), weight=float("inf"))
    lessons = stack.learn({0: [bad], 1: [foreign(1)]})
    assert not math.isfinite(lessons[0].grad_norm)
    assert distance(stack.state(0), before) == 0
    assert distance(stack.state(1), before) > 0
    stack.learn({0: [foreign(1)]})  # the next one counts as its first
    lone = Stack([model], settings(), "cpu")
    lone.learn({0: [foreign(1)]})
    assert distance(stack.state(0), lone.state(0)) < 1e-6
    stack.learn({0: [bad]})
    with pytest.raises(DivergedError, match=r"learner.max_skipped allows 1; lower learner.learning_rate"):
        stack.learn({0: [bad]})
