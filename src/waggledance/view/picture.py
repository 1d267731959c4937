"""The picture: runs side by side as one PNG, every chart titled with the question it answers.

States in, a file out, written whole or not at all; the same states give the same bytes. Uses matplotlib's
figures without pyplot, so it needs no display and leaves no state behind.
"""

# matplotlib's stubs leave most keyword arguments untyped.
# pyright: reportUnknownMemberType=false

from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from waggledance.view import tally
from waggledance.view.curve import Point, cumulative, mean_over, smoothing_rounds
from waggledance.view.state import SwarmState
from waggledance.view.text import plain
from waggledance.whole import write_whole

_COLOURS = ("#D55E00", "#009E73", "#CC79A7", "#7F7F7F")
"""Okabe and Ito's, told apart by nearly every eye."""
_LAST_COLOUR = "#0072B2"
_INK = "#222222"
_QUIET = "#767676"


def draw_curves(path: Path, swarms: Mapping[str, SwarmState], title: str = "") -> None:
    """Writes a PNG of 1600 × 800 pixels. The swarm in question comes last, as in the terminal."""
    figure = Figure(figsize=(16, 8), dpi=100, facecolor="white")
    canvas = FigureCanvasAgg(figure)
    grid = figure.add_gridspec(
        2, 2, width_ratios=(1.75, 1), left=0.06, right=0.97, top=0.83, bottom=0.12, hspace=0.48, wspace=0.2
    )
    colours = _colours(swarms)
    _draw_own(figure.add_subplot(grid[:, 0]), swarms, colours)
    _draw_cumulative(figure.add_subplot(grid[0, 1]), swarms, colours)
    _draw_heldout(figure.add_subplot(grid[1, 1]), swarms, colours)
    if title:
        figure.text(0.06, 0.94, plain(title, 120), fontsize=20, weight="bold", color=_INK, parse_math=False)
    png = BytesIO()
    canvas.print_png(png, metadata={"Software": None})
    write_whole(path, png.getvalue(), "the picture")


def _draw_own(axes: Axes, swarms: Mapping[str, SwarmState], colours: Mapping[str, str]) -> None:
    smoothing = smoothing_rounds(tally.progress(swarms.values()).rounds)
    for label, swarm in swarms.items():
        curves = tally.own_curves(swarm, smoothing)
        mean = mean_over(curves)
        if not mean:
            continue
        colour = colours[label]
        for points in curves:
            axes.plot(*_axes_of(points), color=colour, linewidth=0.9, alpha=0.35)
        rounds = [round_ for round_, _ in mean]
        axes.fill_between(rounds, *_band(curves, rounds), color=colour, alpha=0.10, linewidth=0)
        name = f"{plain(label, 20)}: {mean[-1][1]:.3f} at the end"
        axes.plot(*_axes_of(mean), color=colour, linewidth=3.2, label=name)
    _dress(axes, "Does a node answer better while it learns?" if len(swarms) < 2 else "Does sharing help?")
    span = f", moving average of {smoothing} rounds" if smoothing > 1 else ""
    axes.set_ylabel(f"own reward per round{span}")
    axes.set_xlabel("round    (thick: mean over nodes, thin: each node, band: lowest to highest)")
    _from_zero(axes)
    _legend(axes)


def _draw_cumulative(axes: Axes, swarms: Mapping[str, SwarmState], colours: Mapping[str, str]) -> None:
    for label, swarm in swarms.items():
        mean = mean_over([cumulative(node.own) for node in swarm.in_order if node.own.points])
        if mean:
            name = f"{plain(label, 20)}: {mean[-1][1]:.1f}"
            axes.plot(*_axes_of(mean), color=colours[label], linewidth=2.6, label=name)
    _dress(axes, "What did it earn in all?")
    axes.set_ylabel("own reward so far, per node")
    axes.set_xlabel("round")
    _from_zero(axes)
    _legend(axes)


def _draw_heldout(axes: Axes, swarms: Mapping[str, SwarmState], colours: Mapping[str, str]) -> None:
    """Before and after, mean over nodes; the line is one standard deviation, the dots are the nodes."""
    ticks: dict[float, str] = {}
    for place, (label, swarm) in enumerate(swarms.items()):
        # Each swarm's pair stands together, with room before the next.
        x, name, colour = 2.6 * place, plain(label, 12), colours[label]
        before = [node.heldout_start for node in swarm.in_order if node.heldout_start is not None]
        after = [reward for reward in map(tally.heldout, swarm.in_order) if reward is not None]
        ticks[x] = f"{name}\nbefore\n{_draw_bar(axes, x, before, colour, 0.35)}"
        ticks[x + 1] = f"{name}\nafter\n{_draw_bar(axes, x + 1, after, colour, 0.9)}"
    _dress(axes, "Does it hold on tasks nobody trained on?")
    axes.set_ylabel("held-out reward")
    axes.set_xticks(list(ticks), list(ticks.values()), parse_math=False)
    axes.tick_params(axis="x", length=0, labelcolor=_INK)


def _draw_bar(axes: Axes, x: float, rewards: list[float], colour: str, alpha: float) -> str:
    """Gives the mean in words, for below the bar: above it, it would cross the spread."""
    spread = tally.spread(rewards)
    if spread is None:
        return "not measured"
    axes.bar(x, spread.mean, width=0.8, color=colour, alpha=alpha)
    axes.errorbar(x, spread.mean, yerr=spread.deviation, color=_INK, capsize=5, linewidth=1.3)
    axes.scatter([x + 0.26] * len(rewards), rewards, s=14, color=_INK, alpha=0.55, linewidths=0, zorder=3)
    return f"{spread.mean:.3f}"


def _dress(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=15, weight="bold", color=_INK, pad=12)
    axes.grid(axis="y", color="#E6E6E6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_QUIET, labelsize=11)
    axes.xaxis.label.set(color=_QUIET, fontsize=11)
    axes.yaxis.label.set(color=_QUIET, fontsize=11)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color("#BBBBBB")


def _from_zero(axes: Axes) -> None:
    """Both ways: an axis that starts elsewhere makes small differences look large."""
    axes.set_xlim(left=0, right=max(1.0, axes.get_xlim()[1]))
    axes.set_ylim(bottom=0)


def _legend(axes: Axes) -> None:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper left", frameon=False, fontsize=13, labelcolor="linecolor")


def _colours(swarms: Mapping[str, SwarmState]) -> dict[str, str]:
    labels = list(swarms)
    shown = {label: _COLOURS[place % len(_COLOURS)] for place, label in enumerate(labels)}
    return shown | ({labels[-1]: _LAST_COLOUR} if labels else {})


def _axes_of(points: list[Point]) -> tuple[list[int], list[float]]:
    return [round_ for round_, _ in points], [value for _, value in points]


def _band(curves: list[list[Point]], rounds: list[int]) -> tuple[list[float], list[float]]:
    told: dict[int, list[float]] = {round_: [] for round_ in rounds}
    for points in curves:
        for round_, value in points:
            if round_ in told:
                told[round_].append(value)
    return [min(told[round_]) for round_ in rounds], [max(told[round_]) for round_ in rounds]
