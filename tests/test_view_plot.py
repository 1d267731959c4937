"""Plots in characters: every line exactly as wide as asked, at every size, and the curve where it belongs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from waggledance.view.plot import Series, as_lines, draw, round_number_above, spark

numbers = st.floats(allow_nan=True, allow_infinity=True, width=32)
curves = st.lists(st.lists(st.tuples(st.integers(0, 3000), numbers), max_size=30), max_size=9)


@given(curves, st.integers(1, 90), st.integers(1, 30))
def test_every_line_is_as_wide_as_asked(
    points: list[list[tuple[int, float]]], width: int, height: int
) -> None:
    series = [Series(str(place), one, dashed=place % 2 == 0) for place, one in enumerate(points)]
    lines = as_lines(draw(series, width, height, x_name="round"))
    assert len(lines) == height
    assert all(len(line) == cell_len(line) == width for line in lines)


def test_a_rising_line_goes_from_corner_to_corner() -> None:
    lines = as_lines(draw([Series("up", [(0, 0.0), (100, 1.0)])], 8, 3))
    assert lines == ["     ⢀⠔⠊", "  ⢀⡠⠊⠁  ", "⡠⠔⠁     "]


def test_axes_are_labelled_and_reach_the_planned_end() -> None:
    lines = as_lines(draw([Series("swarm", [(0, 0.0), (40, 0.07)])], 40, 8, x_end=120, x_name="round"))
    assert lines[0].startswith("0.08 ┤")
    assert any(line.startswith("0.04 ┤") for line in lines)
    assert lines[-1].startswith("   0 └")
    assert lines[-1].endswith(" 120")
    assert " round " in lines[-1]
    assert all(line[20:].strip() == "" for line in lines[:-1])


def test_runs_name_the_series_they_belong_to_and_the_later_lies_on_top() -> None:
    flat = [(0, 1.0), (10, 1.0)]
    rows = draw([Series("silo", flat, dashed=True), Series("swarm", flat)], 10, 2)
    assert {name for row in rows for text, name in row if text.strip()} == {"swarm"}


def test_a_dashed_line_is_told_from_a_solid_one_without_colour() -> None:
    flat = [(0, 1.0), (10, 1.0)]
    solid, dashed = (as_lines(draw([Series("s", flat, dash)], 12, 1))[0] for dash in (False, True))
    assert " " not in solid
    assert dashed.count(" ") == 6


@pytest.mark.parametrize(
    ("value", "end"), [(0.0, 0.1), (0.077, 0.08), (1.0, 1.0), (0.11, 0.12), (61.0, 80.0)]
)
def test_axes_end_at_round_numbers(value: float, end: float) -> None:
    assert round_number_above(value) == pytest.approx(end)


@given(st.floats(1e-300, 1e300))
def test_an_axis_never_ends_below_its_values(value: float) -> None:
    assert value <= round_number_above(value) <= 2 * value


def test_sparks() -> None:
    assert spark([0.0, 0.5, 1.0], 3) == "▁▄█"
    assert spark([0.0, 0.0], 4) == "▁▁  "
    assert spark([], 3) == "   "
    assert spark([0.5] * 100, 5, top=1.0) == "▄▄▄▄▄"


@given(st.lists(numbers, max_size=60), st.integers(0, 30))
def test_a_spark_is_as_wide_as_asked(values: list[float], width: int) -> None:
    assert len(spark(values, width)) == width
