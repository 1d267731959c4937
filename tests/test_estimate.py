"""pass@1, pass@k and their intervals, against numbers made by hand."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waggledance.estimate import changed, estimated, pass_at

VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=50)


@pytest.mark.parametrize(
    ("k", "rewards", "expected"),
    [
        (1, (1.0, 0.0, 0.0, 0.0), 0.25),
        (2, (1.0, 0.0, 0.0, 0.0), 0.5),
        (2, (1.0, 1.0, 0.0, 0.0), 5 / 6),
        (4, (1.0, 0.0, 0.0, 0.0), 1.0),
        (3, (0.0, 0.0, 0.0), 0.0),
        (1, (0.5, 0.99, 1.0), 1 / 3),  # partial credit is not right
    ],
)
def test_pass_at_k_by_hand(k: int, rewards: tuple[float, ...], expected: float) -> None:
    assert pass_at(k, rewards) == pytest.approx(expected)


@given(rewards=st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=8), k=st.integers(1, 8))
def test_pass_at_k_is_the_share_of_draws_with_a_right_one(rewards: list[float], k: int) -> None:
    k = min(k, len(rewards))
    draws = list(itertools.combinations(rewards, k))
    assert pass_at(k, rewards) == pytest.approx(sum(max(draw) for draw in draws) / len(draws))


def test_wilson_by_hand() -> None:
    """7 of 10: the textbook's interval."""
    estimate = estimated([1.0] * 7 + [0.0] * 3)
    assert (estimate.value, round(estimate.low, 4), round(estimate.high, 4)) == (0.7, 0.3968, 0.8922)
    nothing = estimated([0.0] * 100)
    assert (nothing.low, round(nothing.high, 4)) == (0.0, 0.0370)


@given(VALUES)
def test_an_interval_holds_its_value_and_is_never_empty(values: list[float]) -> None:
    estimate = estimated(values)
    assert -1e-12 <= estimate.low <= estimate.value + 1e-12
    assert estimate.value - 1e-12 <= estimate.high <= 1
    assert estimate.low < estimate.high


def test_a_change_is_told_task_by_task() -> None:
    """Every task got better by as much: the change is certain, however far the tasks lie apart."""
    change = changed([0.0, 0.25, 0.5], [0.25, 0.5, 0.75])
    assert (change.value, change.low, change.high) == (0.25, 0.25, 0.25)
    unsure = changed([0.0, 1.0], [1.0, 0.0])
    assert unsure.value == 0
    assert unsure.low < -1
