"""Held-out evaluation: a fixed set of tasks that nobody trains on, in turn from every source.

A policy and sources come in, the share of right answers goes out. The set and the seed stay the same over a
run, so that before and after differ by what was learned.
"""

import time
from collections.abc import Callable, Sequence

from waggledance.events import Evaluated
from waggledance.seams import Policy, Source
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
    *,
    tasks: int,
    completions: int,
    seed: int,
    stopwatch: Callable[[], float] = time.perf_counter,
) -> Evaluated:
    start = stopwatch()
    by_name = {source.name: source for source in sources}
    asked = heldout_tasks(sources, tasks)
    rewards: dict[str, list[float]] = {}
    for task, rollouts in zip(asked, policy.generate(asked, completions, seed), strict=True):
        scores = by_name[task.source].verify(task, [rollout.text for rollout in rollouts])
        rewards.setdefault(task.source, []).extend(scores)
    everything = [reward for scores in rewards.values() for reward in scores]
    return Evaluated(
        reward=sum(everything) / max(1, len(everything)),
        by_source={name: sum(scores) / len(scores) for name, scores in rewards.items()},
        rollouts=len(everything),
        seconds=stopwatch() - start,
    )
