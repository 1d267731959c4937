"""Pool, mix and share: what is given, kept and trained on."""

import random

from hypothesis import given
from hypothesis import strategies as st

from waggledance.rollout import Author, Group, Rollout, ScoredGroup, mean_reward
from waggledance.sharing.fixed import Fixed
from waggledance.sharing.pool import Pool
from waggledance.sharing.share import EVERYTHING, INFORMATIVE, NOTHING, to_share
from waggledance.task import Digest, SourceName, Task

SOURCE, DIGEST = SourceName("arithmetic"), Digest("0")


def group(author: str, round_number: int = 1, index: int = 0, size: int = 2) -> Group:
    rollouts = (Rollout("<answer>1</answer>", finished=True, tokens=1, mean_logprob=-1.0),) * size
    return Group(Author(author), round_number, SOURCE, DIGEST, index, rollouts)


def scored(*rewards: float, author: str = "a") -> ScoredGroup:
    return ScoredGroup(group(author, size=len(rewards)), Task(SOURCE, 0, "1?", "number", "1"), rewards)


groups = st.builds(
    group,
    st.sampled_from("abc"),
    round_number=st.integers(1, 4),
    index=st.integers(0, 20),
    size=st.integers(1, 3),
)


@given(
    arrivals=st.lists(st.tuples(st.integers(0, 3), st.lists(groups, max_size=12)), max_size=12),
    limit=st.integers(1, 16),
    age=st.integers(0, 5),
    seed=st.integers(0, 9),
)
def test_the_pool_keeps_its_bounds(
    arrivals: list[tuple[int, list[Group]]], limit: int, age: int, seed: int
) -> None:
    pool = Pool(limit_groups=limit, max_age_rounds=age)
    now, arrived_at, draw = 0, dict[tuple[object, ...], int](), random.Random(seed)
    for pause, arrived in arrivals:
        now += pause
        pool.add(arrived, now)
        for new in arrived:
            arrived_at[new.author, new.round, new.index] = now
        assert len(pool) <= limit
        taken = pool.take(draw)
        if taken is not None:
            assert now - arrived_at[taken.author, taken.round, taken.index] <= age
            remaining = len(pool)
            drained = [pool.take(draw) for _ in range(remaining)]
            assert taken not in drained
            assert pool.take(draw) is None


def test_the_newest_stay_and_what_goes_is_counted() -> None:
    pool = Pool(limit_groups=3, max_age_rounds=9)
    pool.add([group("a", index=index) for index in range(5)], now=1)
    draw = random.Random(0)
    kept = [pool.take(draw) for _ in range(3)]
    assert sorted(one.index for one in kept if one) == [2, 3, 4]
    assert pool.dropped == 2


def test_old_groups_go() -> None:
    pool = Pool(limit_groups=9, max_age_rounds=2)
    pool.add([group("a", index=1)], now=1)
    pool.add([group("a", index=2)], now=3)
    assert len(pool) == 2
    pool.add([], now=4)
    assert [one.index for one in [pool.take(random.Random(0))] if one] == [2]


def test_a_group_is_in_the_pool_once_and_handed_out_once() -> None:
    pool = Pool(limit_groups=9, max_age_rounds=2)
    pool.add([group("a"), group("a"), group("b")], now=1)
    assert len(pool) == 2
    draw = random.Random(0)
    while pool.take(draw):
        pass
    pool.add([group("a"), group("b"), group("c")], now=2)
    assert [pool.take(draw), pool.take(draw)] == [group("c"), None]


def test_two_groups_of_one_task_are_two_groups() -> None:
    """Small sources draw a task twice in a round; what was tried differs."""
    pool = Pool(limit_groups=9, max_age_rounds=2)
    pool.add([group("a", size=2), group("a", size=3)], now=1)
    assert len(pool) == 2


@given(st.lists(st.lists(groups, max_size=30), max_size=10))
def test_what_a_pool_remembers_is_bounded(arrivals: list[list[Group]]) -> None:
    pool = Pool(limit_groups=2, max_age_rounds=1)
    for now, arrived in enumerate(arrivals):
        pool.add(arrived, now)
        assert len(pool._known) <= 8  # pyright: ignore[reportPrivateUsage]


def test_the_draw_is_uniform() -> None:
    """Chi-square over which of eight groups comes first, 4,000 seeded draws; 7 degrees, p = 0.001 at 24.3."""
    counts = dict.fromkeys(range(8), 0)
    for seed in range(4000):
        pool = Pool(limit_groups=8, max_age_rounds=1)
        pool.add([group("a", index=index) for index in range(8)], now=1)
        first = pool.take(random.Random(seed))
        assert first is not None
        counts[first.index] += 1
    assert sum((count - 500) ** 2 / 500 for count in counts.values()) < 24.3


def test_fixed_takes_all_own_groups_and_informative_foreign_ones() -> None:
    own = [scored(0, 0), scored(1, 0)]
    foreign = [
        scored(0, 0, author="b"),
        scored(1, 0, author="b"),
        scored(1, 1, author="c"),
        scored(0, 1, author="c"),
    ]
    assert Fixed(2, 1).choose(own, iter(foreign)) == [*own, foreign[1]]
    assert Fixed(2, 9).choose(own, iter(foreign)) == [*own, foreign[1], foreign[3]]
    assert Fixed(2, 0).choose(own, iter(foreign)) == own


def test_fixed_verifies_no_more_than_it_needs() -> None:
    foreign = iter([scored(1, 0, author="b"), scored(1, 0, author="c")])
    Fixed(1, 1).choose([], foreign)
    assert next(foreign).group.author == "c"


def test_with_no_foreign_slots_nothing_is_verified() -> None:
    foreign = iter([scored(1, 0, author="b")])
    Fixed(1, 0).choose([], foreign)
    assert next(foreign).group.author == "b"


def test_share() -> None:
    own = [scored(0, 0), scored(1, 0)]
    assert to_share(own, EVERYTHING) == [one.group for one in own]
    assert to_share(own, INFORMATIVE) == [own[1].group]
    assert to_share(own, NOTHING) == []


def test_mean_reward() -> None:
    assert mean_reward([]) == 0
    assert mean_reward([scored(1, 0), scored(0, 0)]) == 0.25
