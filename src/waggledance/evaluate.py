"""Held-out evaluation: a fixed set of tasks that nobody trains on, in turn from every source.

A policy and sources come in, the share of right answers goes out. The set and the seed stay the same over a
run, so that before and after differ by what was learned.
"""

import time
from collections.abc import Callable, Sequence

from waggledance.events import Evaluated
from waggledance.seams import Failure, Policy, Source, Verifier
from waggledance.task import Task


def heldout_tasks(sources: Sequence[Source], count: int) -> list[Task]:
    """Held-out tasks lie behind the ones that may be trained on."""
    tasks: list[Task] = []
    for k in range(count):
        source = sources[k % len(sources)]
        tasks.append(source.task(source.size + k // len(sources)))
    return tasks


def evaluate(
    policy: Policy,
    sources: Sequence[Source],
    verifier: Verifier,
    *,
    tasks: int,
    completions: int,
    seed: int,
    stopwatch: Callable[[], float] = time.perf_counter,
) -> Evaluated:
    start = stopwatch()
    asked = heldout_tasks(sources, tasks)
    answers = policy.generate(asked, completions, seed)
    pairs = [
        (task, [rollout.text for rollout in rollouts]) for task, rollouts in zip(asked, answers, strict=True)
    ]
    rewards: dict[str, list[float]] = {}
    for (task, texts), verdict in zip(pairs, verifier.verify(pairs), strict=True):
        # What cannot be judged is not right.
        scores = [0.0] * len(texts) if isinstance(verdict, Failure) else verdict
        rewards.setdefault(task.source, []).extend(scores)
    everything = [reward for scores in rewards.values() for reward in scores]
    return Evaluated(
        reward=sum(everything) / max(1, len(everything)),
        by_source={name: sum(scores) / len(scores) for name, scores in rewards.items()},
        rollouts=len(everything),
        seconds=stopwatch() - start,
    )
