"""A made-up run for the views: eight nodes of which those in a swarm learn faster. Seeded, no model."""

import math
import random
from collections.abc import Iterator

from waggledance.events import (
    Entry,
    Evaluated,
    Event,
    Finished,
    Generated,
    Learned,
    Said,
    Sampled,
    Saved,
    Shared,
    Started,
    Used,
    Verified,
)
from waggledance.rollout import Author
from waggledance.view.state import SwarmState, fold_all

QUESTIONS = (
    ("basic_arithmetic", "Calculate 3 + 4 * 2.", "<answer>11</answer>"),
    ("base_conversion", "Convert the base-2 number 1011 to base-10.", "it is 11 <answer>11</answer>"),
    ("calendar_arithmetic", "Is 1900 a leap year?", "<answer>no</answer>\n"),
    ("propositional_logic", "P or Q, not P. What follows?", "<answer>Q</answer>\x1b[2J\x1b[1;1H[bold]owned"),
)


def swarm_state(rounds: int, planned: int = 120, nodes: int = 8, together: bool = True) -> SwarmState:
    return fold_all(SwarmState(), entries(rounds, planned, nodes, together))


def entries(rounds: int, planned: int, nodes: int, together: bool) -> Iterator[Entry]:
    authors = [Author(f"n{place}") for place in range(nodes)]
    rng = random.Random(f"{nodes} {together}")
    for author in authors:
        yield told(
            author, 0, Started("tiny", 10**6, ("easy",), "4/4" if together else "8/0", planned, 8, 1, "0")
        )
        yield told(author, 0, Evaluated(0.004 + 0.004 * rng.random(), {}, 64, 0.5))
    for round_ in range(1, rounds + 1):
        for place, author in enumerate(authors):
            for event in events_of_round(round_ / planned, author, authors, together, rng, place):
                yield told(author, round_, event)
    if rounds == planned:
        for author in authors:
            reward = (0.09 if together else 0.025) * rng.uniform(0.7, 1.3)
            yield told(author, rounds, Evaluated(reward, {}, 64, 0.5))
            yield told(author, rounds, Saved(f"runs/{author}"))
            yield told(author, rounds, Finished("all rounds done"))


def events_of_round(
    time: float, author: Author, authors: list[Author], together: bool, rng: random.Random, place: int
) -> Iterator[Event]:
    skill = (0.13 if together else 0.035) / (1 + math.exp(-9 * (time - 0.45 - 0.01 * place))) + 0.003
    rollouts = 32 if together else 64
    right = sum(rng.random() < skill for _ in range(rollouts))
    yield Generated(rollouts // 8, rollouts, rollouts * 20, 0.4)
    by_source = {source: min(1.0, skill * rng.uniform(0.4, 1.6)) for source, _, _ in rng.sample(QUESTIONS, 2)}
    yield Verified(right / rollouts, min(right, 4), 0.01, by_source)
    if right:
        source, question, answer = rng.choice(QUESTIONS)
        yield Said(author, source, question, answer, 1.0)
    if together and len(authors) > 1:
        others = [other for other in authors if other != author]
        weights = [1.0 + 4 * (other == "n2") for other in others]
        taken: dict[str, int] = {}
        for giver in rng.choices(others, weights, k=4):
            taken[giver] = taken.get(giver, 0) + 1
        yield Shared(4, 2600)
        yield Sampled(4, 4, taken, 120, 7, {"stale": 1} if rng.random() < 0.1 else {})
    yield Learned(min(1.0, skill * 1.6), 8, 900, 0.01, 0.4, 0.0, 0.01, 0.6)
    yield Used(400_000_000 + 1_000_000 * place, 500_000_000, 60.0 * time)


def told(author: Author, round_: int, event: Event) -> Entry:
    return Entry(at=1_700_000_000.0 + round_, node=author, round=round_, event=event)
