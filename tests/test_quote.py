"""What is told of a round's rollouts, to look at."""

import random

from waggledance.quote import TEXT_LIMIT, any_said, best_said
from waggledance.rollout import Author, Group, Rollout, ScoredGroup
from waggledance.task import Digest, SourceName, Task

GCD = SourceName("easy:gcd")


def scored(author: str, *rewards: float, length: int = 1) -> ScoredGroup:
    rollouts = tuple(Rollout(f"{place}" * length, True, 1, -0.1) for place in range(len(rewards)))
    group = Group(Author(author), 1, GCD, Digest(""), 0, rollouts)
    return ScoredGroup(group, Task(GCD, 0, "gcd(4, 6)?" * length, "number", "2"), rewards)


def test_the_best_rollout_of_the_round_is_told_with_its_author_and_reward() -> None:
    [said] = best_said([scored("bee", 0.0, 0.0), scored("ant", 0.0, 0.5, 1.0)])
    assert (said.author, said.text, said.reward) == ("ant", "2", 1.0)
    assert best_said([]) == []


def test_any_rollout_may_be_told_the_same_for_the_same_draw() -> None:
    groups = [scored("bee", 0.0, 1.0), scored("ant", 0.0, 0.0, 0.0)]
    told = [any_said(groups, random.Random(seed))[0] for seed in range(200)]
    assert {(said.author, said.text) for said in told} == {
        (one.group.author, rollout.text) for one in groups for rollout in one.group.rollouts
    }
    assert any_said(groups, random.Random(3)) == any_said(groups, random.Random(3))
    assert any_said([], random.Random(3)) == any_said([scored("bee")], random.Random(3)) == []


def test_a_strangers_long_text_is_cut_before_it_reaches_the_journal() -> None:
    [said] = best_said([scored("bee", 1.0, length=10**6)])
    assert len(said.text) == len(said.question) == TEXT_LIMIT
