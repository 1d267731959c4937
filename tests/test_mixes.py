"""Mixes: what is trained on, and how foreign text counts."""

# pyright: standard

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from test_sharing import group
from waggledance.config import MixConfig
from waggledance.learner.correction import FLOOR, NEVER, trust
from waggledance.rollout import ScoredGroup
from waggledance.sharing.corrected import Corrected
from waggledance.sharing.fixed import Fixed
from waggledance.sharing.mixes import open_mix
from waggledance.sharing.need import Need
from waggledance.sharing.replay import Replay
from waggledance.sharing.rescue import Rescue
from waggledance.task import SourceName, Task

TEACHES, FAILS, SHINES = (1.0, 0.0), (0.0, 0.0), (1.0, 1.0)
_index = count()


def scored(rewards: tuple[float, ...], author: str = "me", source: str = "sums") -> ScoredGroup:
    """Each of its own, so that two never pass for one."""
    index = next(_index)
    return ScoredGroup(
        group(author, index=index, size=len(rewards)),
        Task(SourceName(source), index, "?", "number", "1"),
        rewards,
    )


def foreign(*rewards: tuple[float, ...], source: str = "sums") -> Iterator[ScoredGroup]:
    return iter([scored(each, "other", source) for each in rewards])


def authors(batch: list[ScoredGroup]) -> list[str]:
    return [one.group.author for one in batch]


def test_need_fills_what_would_teach_nothing() -> None:
    own = [scored(TEACHES), scored(FAILS), scored(TEACHES), scored(SHINES), scored(FAILS)]
    batch = Need(3, 2).choose(own, foreign(FAILS, TEACHES, TEACHES, TEACHES))
    assert authors(batch) == ["me", "me", "other", "other", "me"]
    assert [one.informative for one in batch] == [True, True, True, True, False]
    without = Need(3, 2).choose(own, foreign())
    assert [one.informative for one in without] == [True, True, False, False, False]
    enough = [scored(TEACHES) for _ in range(5)]
    assert Need(3, 2).choose(enough, foreign(TEACHES)) == enough


def test_need_generates_as_many_as_it_takes_for_some_to_teach() -> None:
    mix = Need(4, 4)
    assert mix.own_groups == 8
    for _ in range(200):
        mix.choose([scored(TEACHES) for _ in range(mix.own_groups)], foreign())
    assert mix.own_groups == 5  # a share just under one asks for a spare
    for _ in range(200):
        mix.choose([scored(FAILS) for _ in range(mix.own_groups)], foreign())
    assert mix.own_groups == 8


@given(
    st.integers(0, 6),
    st.integers(0, 6),
    st.lists(st.sampled_from([TEACHES, FAILS, SHINES]), max_size=12),
    st.lists(st.sampled_from([TEACHES, FAILS, SHINES]), max_size=12),
)
def test_need_keeps_its_bounds(
    own: int, cap: int, tried: list[tuple[float, ...]], others: list[tuple[float, ...]]
) -> None:
    mix = Need(own, cap)
    mine = [scored(each) for each in tried]
    for _ in range(3):
        batch = mix.choose(mine, foreign(*others))
        assert len(batch) <= max(own + cap, sum(one.informative for one in mine))
        assert authors(batch).count("other") <= cap
        assert {id(one) for one in mine if one.informative} <= {id(one) for one in batch}
        assert min(1, own + cap) <= mix.own_groups <= own + cap


def test_rescue_helps_where_everything_failed() -> None:
    own = [scored(FAILS, source="sums"), scored(TEACHES, source="dates"), scored(FAILS, source="dates")]
    helpers = [
        *foreign(TEACHES, source="dates"),
        *foreign(SHINES, source="sums"),
        *foreign(TEACHES, source="sums"),
        *foreign(TEACHES, source="bits"),
    ]
    batch = Rescue(3, 2).choose(own, iter(helpers))
    assert batch == [*own, helpers[2]]
    pool = foreign(TEACHES)
    assert Rescue(1, 2).choose([scored(TEACHES)], pool) != []
    assert next(pool).informative  # nobody was asked for what nobody needs


def test_corrected_doubts_the_foreign_ones_alone() -> None:
    batch = Corrected(Fixed(1, 2)).choose([scored(TEACHES)], foreign(TEACHES, FAILS, TEACHES))
    assert [(one.group.author, one.doubted) for one in batch] == [
        ("me", False),
        ("other", True),
        ("other", True),
    ]


def test_replay_repeats_once_what_taught_lately() -> None:
    mix = Replay(Fixed(2, 0), 2)
    first = [scored(TEACHES), scored(TEACHES)]
    assert mix.choose(first, foreign()) == first
    second = [scored(TEACHES), scored(FAILS)]
    assert mix.choose(second, foreign()) == [second[0], replace(first[1], doubted=True)]
    third = [scored(FAILS), scored(FAILS)]
    newest_first = [replace(second[0], doubted=True), replace(first[0], doubted=True)]
    assert mix.choose(third, foreign()) == newest_first
    assert mix.choose(third, foreign()) == third  # what was replayed is not remembered again
    mix.choose(first, foreign())
    for _ in range(2):
        mix.choose([], foreign())
    assert mix.choose(third, foreign()) == third  # too old


@pytest.mark.parametrize(
    ("config", "kinds"),
    [
        (MixConfig(), [Fixed]),
        (MixConfig(kind="need"), [Need]),
        (MixConfig(kind="rescue", corrected=True), [Corrected, Rescue]),
        (MixConfig(corrected=True, replay_rounds=3), [Replay, Corrected, Fixed]),
    ],
)
def test_a_mix_is_opened_by_its_settings(config: MixConfig, kinds: list[type]) -> None:
    mix = open_mix(config)
    for kind in kinds:
        assert isinstance(mix, kind)
        mix = getattr(mix, "mix", None) or getattr(mix, "_mix", None)  # type: ignore[assignment]


def test_trust_is_the_ratio_a_token_squared_and_nothing_below_the_floor() -> None:
    logprobs = torch.tensor([[-1.0, -1.0, -9.0], [-1.0, -1.0, -1.0], [-0.5, -0.5, -0.5], [-3.0, -3.0, -9.0]])
    mask = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 0.0]])
    author = torch.tensor([-1.6, NEVER, -3.0, -2.0])
    got = trust(logprobs, mask, author).tolist()
    assert got == pytest.approx([math.exp(2 * (-2.0 + 1.6) / 2), 1.0, 1.0, 0.0])
    edge = torch.tensor([[math.log(FLOOR) + 1e-4]])
    assert trust(edge, torch.ones(1, 1), torch.zeros(1)).item() == pytest.approx(FLOOR**2, abs=1e-3)
