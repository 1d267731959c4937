"""The map: where sharing helps, for an experiment with many configurations or several silos.

Comparisons come in, PNG bytes go out. A panel answers one of the plan's questions: a row a configuration, its
gain over its silo in own reward and in held-out reward at equal cost, with the 95 % intervals; rows with one
silo stand under its name and what it could do at the start. The plan alone says what is asked.
"""

# matplotlib's stubs leave most keyword arguments untyped.
# pyright: reportUnknownMemberType=false

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import groupby
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from waggledance.lab.interval import Difference
from waggledance.lab.record import TrialResult
from waggledance.lab.results import Comparison, Results
from waggledance.view.text import plain

AHEAD, BEHIND, UNCLEAR, INK, FAINT = "#0072B2", "#D55E00", "#8A8A8A", "#222222", "#E6E6E6"
ROW_IN, TITLE_IN, AXIS_IN, HEAD_IN, FOOT_IN = 0.25, 0.55, 0.45, 1.15, 0.2
COLUMN_IN, EDGE_IN, LABELS_IN, PLOT_IN, GAP_IN = 8.0, 0.32, 2.15, 2.45, 0.3
"""A column of panels; in it an edge, the names, a plot of own reward, a gap, a plot of held-out reward."""
BEND = 0.01
"""Far below this gain the scale is even, far above it goes with the root: regimes differ by hundredths and by
wholes."""
TICKS = (0.0, 1.0, 0.1, -0.1, -0.5, 0.5, 5.0, 20.0, 100.0, 0.25, 2.0, -0.25, 0.05, -0.05)
"""The first of these that have room are written."""
ROOM = 0.165
"""A tick's, as a share of the axis."""
Reach = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Sheet:
    """Places in inches from the upper left corner, as matplotlib wants them."""

    figure: Figure
    width_in: float
    height_in: float

    def axes(self, left: float, top: float, width: float, height: float) -> Axes:
        bottom = 1 - (top + height) / self.height_in
        return self.figure.add_axes(
            (left / self.width_in, bottom, width / self.width_in, height / self.height_in)
        )

    def write(self, left: float, top: float, text: str, size: float, colour: str, weight: str) -> None:
        self.figure.text(
            left / self.width_in,
            1 - top / self.height_in,
            text,
            fontsize=size,
            color=colour,
            weight=weight,
            parse_math=False,
        )


@dataclass(frozen=True, slots=True)
class Row:
    """A configuration, or, where there is no comparison, the line that names a silo."""

    label: str
    comparison: Comparison | None


@dataclass(frozen=True, slots=True)
class Panel:
    question: str
    rows: tuple[Row, ...]

    @property
    def height_in(self) -> float:
        return TITLE_IN + ROW_IN * len(self.rows) + AXIS_IN


def draw_map(results: Results, questions: Mapping[str, str]) -> bytes:
    """`questions` names for every configuration that is compared the panel it belongs to."""
    columns = [column for column in side_by_side(panels_of(results, questions)) if column]
    height = HEAD_IN + FOOT_IN + max(sum(panel.height_in for panel in column) for column in columns)
    width = COLUMN_IN * len(columns)
    figure = Figure(figsize=(width, height), dpi=100, facecolor="white")
    canvas = FigureCanvasAgg(figure)
    sheet = Sheet(figure, width, height)
    compared = results.comparisons
    reaches = reach_of([one.own for one in compared]), reach_of([one.heldout_equal_cost for one in compared])
    _write_head(sheet, results)
    for place, column in enumerate(columns):
        top = HEAD_IN
        for panel in column:
            _draw_panel(sheet, panel, place * COLUMN_IN + EDGE_IN, top, reaches)
            top += panel.height_in
    png = BytesIO()
    canvas.print_png(png, metadata={"Software": None})
    return png.getvalue()


def panels_of(results: Results, questions: Mapping[str, str]) -> list[Panel]:
    """In the order in which the plan first asks."""
    asked = list(dict.fromkeys(questions[one.configuration] for one in results.comparisons))
    panels = {question: list[Comparison]() for question in asked}
    for one in results.comparisons:
        panels[questions[one.configuration]].append(one)
    return [Panel(question, _rows(own, results)) for question, own in panels.items()]


def _rows(comparisons: Sequence[Comparison], results: Results) -> tuple[Row, ...]:
    order = list(dict.fromkeys(one.silo for one in comparisons))
    together = sorted(comparisons, key=lambda one: order.index(one.silo))
    rows: list[Row] = []
    for silo, group in groupby(together, key=lambda one: one.silo):
        start = fmean(trial.heldout.start for trial in _trials(results, silo))
        rarely = "under 0.1%" if start < 0.001 else f"{start:.1%}"
        rows.append(Row(f"against {plain(silo, 40)}, at the start right on {rarely}", None))
        rows += [Row(plain(one.configuration, 40), one) for one in group]
    return tuple(rows)


def _trials(results: Results, configuration: str) -> list[TrialResult]:
    return [trial for trial in results.trials if trial.configuration == configuration]


def side_by_side(panels: Sequence[Panel]) -> tuple[list[Panel], list[Panel]]:
    """Two columns, read downwards, cut where the longer one is shortest."""
    heights = [panel.height_in for panel in panels]
    cut = min(range(1, len(panels) + 1), key=lambda k: max(sum(heights[:k]), sum(heights[k:])))
    return list(panels[:cut]), list(panels[cut:])


def reach_of(differences: Sequence[Difference]) -> Reach:
    """On the bent scale, from the lowest to the highest end of all intervals: all panels share it."""
    ends = [end for one in differences for end in (one.gain, one.low, one.high) if end is not None]
    low, high = bent(min([-0.1, *ends])), bent(max([0.1, *ends]))
    return low - 0.04 * (high - low), high + 0.04 * (high - low)


def bent(gain: float) -> float:
    return math.copysign(math.sqrt(abs(gain) + BEND) - math.sqrt(BEND), gain)


def ticks_of(reach: Reach) -> list[float]:
    """Gains, far enough from each other to be read."""
    low, high = reach
    chosen: list[float] = []
    for tick in TICKS:
        here = bent(tick)
        clear = all(abs(here - bent(other)) >= ROOM * (high - low) for other in chosen)
        if low <= here <= high and clear:
            chosen.append(tick)
    return sorted(chosen)


def _write_head(sheet: Sheet, results: Results) -> None:
    seeds = f"{len(results.seeds)} seed{'s' if len(results.seeds) > 1 else ''}"
    told = f"Gain over the silo and its 95 % interval; {results.rounds} rounds, {seeds}."
    name = plain(results.name, 40)
    sheet.write(EDGE_IN, 0.45, f"{name}: when does sharing help?", 18, INK, "bold")
    sheet.write(EDGE_IN, 0.75, f"{told} Square-root scale.", 10.5, INK, "normal")
    for right, colour, words in (
        (0.0, AHEAD, "● whole interval above the silo"),
        (2.6, UNCLEAR, "● no clear difference"),
        (4.5, BEHIND, "● whole interval below"),
    ):
        sheet.write(EDGE_IN + right, 0.98, words, 10.5, colour, "normal")


def _draw_panel(sheet: Sheet, panel: Panel, left: float, top: float, reaches: tuple[Reach, Reach]) -> None:
    sheet.write(left, top + 0.25, plain(panel.question, 70), 13, INK, "bold")
    plot = left + LABELS_IN
    own = sheet.axes(plot, top + TITLE_IN, PLOT_IN, ROW_IN * len(panel.rows))
    heldout = sheet.axes(plot + PLOT_IN + GAP_IN, top + TITLE_IN, PLOT_IN, ROW_IN * len(panel.rows))
    _dress(own, panel, "own reward, cumulative", reaches[0])
    _dress(heldout, panel, "held-out reward at equal cost", reaches[1])
    for place, row in enumerate(panel.rows):
        _write_label(own, place, row)
        if row.comparison is not None:
            _draw_gain(own, place, row.comparison.own)
            _draw_gain(heldout, place, row.comparison.heldout_equal_cost)


def _dress(axes: Axes, panel: Panel, title: str, reach: Reach) -> None:
    axes.set_xlim(*reach)
    axes.set_ylim(len(panel.rows) - 0.5, -0.5)
    axes.set_yticks([])
    ticks = ticks_of(reach)
    axes.set_xticks([bent(tick) for tick in ticks], [_percent(tick) for tick in ticks], fontsize=8, color=INK)
    axes.tick_params(axis="x", length=0)
    axes.grid(axis="x", color=FAINT, linewidth=0.8)
    axes.axvline(0, color=INK, linewidth=1)
    axes.set_axisbelow(True)
    axes.set_title(title, loc="left", fontsize=9, color=INK, pad=3)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _percent(share: float) -> str:
    return f"{share:+.0%}".replace("-", "−") if share else "0"


def _write_label(axes: Axes, place: int, row: Row) -> None:
    silo = row.comparison is None
    axes.text(
        (0.0 if silo else 0.12) / PLOT_IN - LABELS_IN / PLOT_IN,
        place,
        row.label,
        transform=axes.get_yaxis_transform(),
        va="center",
        fontsize=8.5 if silo else 10,
        style="italic" if silo else "normal",
        color=INK,
        parse_math=False,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0},
    )


def _draw_gain(axes: Axes, place: int, difference: Difference) -> None:
    if difference.gain is None:
        return
    colour = _colour(difference)
    if difference.low is not None and difference.high is not None:
        ends = bent(difference.low), bent(difference.high)
        axes.plot(ends, [place, place], color=colour, linewidth=2.2)
    axes.plot([bent(difference.gain)], [place], marker="o", markersize=6, color=colour)


def _colour(difference: Difference) -> str:
    if difference.low is None or difference.high is None:
        return UNCLEAR
    return AHEAD if difference.low > 0 else BEHIND if difference.high < 0 else UNCLEAR
