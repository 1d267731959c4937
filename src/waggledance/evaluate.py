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
    rewards, _ = rewards_of(policy, sources, verifier, tasks=tasks, completions=completions, seed=seed)
    by_source: dict[str, list[float]] = {}
    for source, scores in rewards:
        by_source.setdefault(source, []).extend(scores)
    everything = [reward for _, scores in rewards for reward in scores]
    return Evaluated(
        reward=sum(everything) / max(1, len(everything)),
        by_source={name: sum(scores) / len(scores) for name, scores in by_source.items()},
        rollouts=len(everything),
        seconds=stopwatch() - start,
    )


def rewards_of(
    policy: Policy,
    sources: Sequence[Source],
    verifier: Verifier,
    *,
    tasks: int,
    completions: int,
    seed: int,
) -> tuple[tuple[tuple[str, tuple[float, ...]], ...], int]:
    """For every held-out task its source and a reward for each completion; and the tokens that it took."""
    asked = heldout_tasks(sources, tasks)
    answers = policy.generate(asked, completions, seed)
    pairs = [
        (task, [rollout.text for rollout in rollouts]) for task, rollouts in zip(asked, answers, strict=True)
    ]
    rewards: list[tuple[str, tuple[float, ...]]] = []
    for (task, texts), verdict in zip(pairs, verifier.verify(pairs), strict=True):
        # What cannot be judged is not right.
        rewards.append((task.source, (0.0,) * len(texts) if isinstance(verdict, Failure) else tuple(verdict)))
    return tuple(rewards), sum(rollout.tokens for rollouts in answers for rollout in rollouts)
