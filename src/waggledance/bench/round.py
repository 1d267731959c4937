"""One node's round with a real model: generate, then one update; beside what its arithmetic must take.

Eight of the paper's questions, eight completions each of exactly 32 tokens, one GRPO step over all of them.
The floor is the round's multiplications, every prompt computed once, at the rate of a large float32 matrix
product, measured in the same run.
"""

# pyright: standard

import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import torch

from waggledance.config import LearnerConfig
from waggledance.learner.grpo import GRPO, GRPOSettings
from waggledance.learner.loss import Clip
from waggledance.model import Model, load_model
from waggledance.policy.hf import HFPolicy
from waggledance.rollout import Author, Group, Rollout, ScoredGroup
from waggledance.task import Digest, Task
from waggledance.tasks import open_sources

QUESTIONS, COMPLETIONS, TOKENS = 8, 8, 32
WARM_UPS = 1
LONG = "paper:arc_1d"
SIDE, TRIES = 2048, 5
"""Of the large matrix product."""
CURVE = (50, 100, 200, 400, 700, 1000)
"""Prompt lengths."""

Tell = Callable[[str], None]


class CurvePoint(msgspec.Struct, frozen=True):
    prompt_tokens: int
    seconds: float


class Round(msgspec.Struct, frozen=True, omit_defaults=True):
    """Medians over the rounds after the warm-up."""

    seconds: float
    generate_s: float
    learn_s: float
    floor_s: float
    times_floor: float
    peak_gb: float
    gflops: float
    """Of the large matrix product."""
    prompt_tokens: int
    threads: int
    model: str
    curve: list[CurvePoint] = []


class Timed(msgspec.Struct, frozen=True):
    generate_s: float
    learn_s: float


def measure_round(
    name: str,
    threads: int,
    repeats: int,
    tell: Tell,
    *,
    memory_mb: int | None = None,
    recompute: bool = False,
    curve: bool = False,
) -> Round:
    torch.set_num_threads(threads)
    # No end token: every completion is as long as the others, in every run.
    model = replace(load_model(name), end_ids=())
    tasks = reference_tasks()
    prompt_tokens = sum(len(model.prompt_ids(task)) for task in tasks)
    node = _Node(model, memory_mb or LearnerConfig().memory_mb, recompute=recompute)
    times: list[Timed] = []
    for number in range(WARM_UPS + repeats):
        times.append(node.round(tasks, number))
        tell(f"round {number}: generate {times[-1].generate_s:.2f} s, learn {times[-1].learn_s:.2f} s")
    times = times[WARM_UPS:]
    seconds = statistics.median(timed.generate_s + timed.learn_s for timed in times)
    peak_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT / 1e9
    gflops = product_gflops()
    floor_s = floor_flops(model, prompt_tokens) / 1e9 / gflops
    return Round(
        seconds=seconds,
        generate_s=statistics.median(timed.generate_s for timed in times),
        learn_s=statistics.median(timed.learn_s for timed in times),
        floor_s=floor_s,
        times_floor=seconds / floor_s,
        peak_gb=peak_gb,
        gflops=gflops,
        prompt_tokens=prompt_tokens,
        threads=threads,
        model=name,
        curve=_curve(node, tell) if curve else [],
    )


_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


def reference_tasks() -> list[Task]:
    """One question of each of the paper's tasks but the one of long grids: always the same."""
    sources = [source for source in open_sources(["paper"]) if source.name != LONG]
    return [source.task(0) for source in sources[:QUESTIONS]]


def floor_flops(model: Model, prompt_tokens: int) -> float:
    """Two a weight and token forward, twice that backward. The embedding is looked up, not multiplied."""
    network: Any = model.network
    head = network.get_output_embeddings().weight.numel()
    looked_up = network.get_input_embeddings().weight.numel()
    tied = network.config.get_text_config().tie_word_embeddings
    body = model.weights - looked_up - (0 if tied else head)
    written = QUESTIONS * COMPLETIONS * TOKENS
    forward = 2 * body * (prompt_tokens + written) + 2 * head * written
    return 4 * forward  # once to generate, once and twice to learn


def product_gflops() -> float:
    left, right = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)
    best = min(_seconds(lambda: left @ right) for _ in range(TRIES))
    return 2 * SIDE**3 / best / 1e9


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


class _Node:
    def __init__(self, model: Model, memory_mb: int, *, recompute: bool = False) -> None:
        self._model = model
        self._policy = HFPolicy(model, 1.0, TOKENS)
        self._learner = GRPO(
            model,
            GRPOSettings(
                learning_rate=1e-6,
                clip=Clip(0.2, 0.28),
                kl_weight=0.0,
                max_grad_norm=1.0,
                epochs=1,
                temperature=1.0,
                max_tokens=TOKENS,
                memory_bytes=memory_mb << 20,
                recompute=recompute,
            ),
        )

    @property
    def window(self) -> int:
        return self._model.window

    def round(self, tasks: Sequence[Task], seed: int) -> Timed:
        start = time.perf_counter()
        answers = self._policy.generate(tasks, COMPLETIONS, seed)
        between = time.perf_counter()
        lesson = self._learner.learn([_scored(task, rows) for task, rows in zip(tasks, answers, strict=True)])
        assert lesson.tokens == len(tasks) * COMPLETIONS * TOKENS
        return Timed(between - start, time.perf_counter() - between)


def _scored(task: Task, rollouts: tuple[Rollout, ...]) -> ScoredGroup:
    """Every other one is right: no group is left out."""
    group = Group(Author("me"), 1, task.source, Digest("d"), task.index, rollouts)
    return ScoredGroup(group, task, tuple(float(place % 2) for place in range(len(rollouts))))


def _curve(node: _Node, tell: Tell) -> list[CurvePoint]:
    """The same round over prompts of one length."""
    points: list[CurvePoint] = []
    for length in (length for length in CURVE if length + 2 * TOKENS <= node.window):
        tasks = [_task_of(node, length, index) for index in range(QUESTIONS)]
        timed = min((node.round(tasks, length) for _ in range(2)), key=lambda t: t.generate_s + t.learn_s)
        points.append(CurvePoint(length, timed.generate_s + timed.learn_s))
        tell(f"prompts of {length} tokens: {points[-1].seconds:.2f} s")
    return points


def _task_of(node: _Node, tokens: int, index: int) -> Task:
    """A question of words whose prompt has about so many tokens."""
    model = node._model
    task = Task(reference_tasks()[0].source, index, "", "text", "")
    words = 0
    while len(model.prompt_ids(task)) < tokens:
        words += max(1, (tokens - len(model.prompt_ids(task))) // 2)
        task = replace(task, question=" ".join(["one", "two", "three", "four"][k % 4] for k in range(words)))
    return task
