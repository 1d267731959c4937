"""The figure: the paper's two, for an experiment with few configurations.

Above every node's own reward, a panel a configuration; below the smoothed mean over nodes and seeds with the
band from the lowest node to the highest. Trials in, PNG bytes out.
"""

# matplotlib's stubs leave most keyword arguments untyped.
# pyright: reportUnknownMemberType=false

from collections.abc import Sequence
from io import BytesIO
from itertools import chain

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from waggledance.lab.record import TrialResult
from waggledance.view.curve import smoothing_rounds
from waggledance.view.text import plain

_COLOURS = ("#7F7F7F", "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MOST_CURVES = 8
"""So many configurations can be told apart as curves; of more `lab/map.py` draws a map."""

TITLES = 150
"""Letters that fit in one line over the panels of the nodes."""


def draw_figure(title: str, trials: Sequence[TrialResult]) -> bytes:
    names = list(dict.fromkeys(trial.configuration for trial in trials))
    shown = names[:MOST_CURVES]
    figure = Figure(figsize=(16, 9), dpi=100, facecolor="white")
    canvas = FigureCanvasAgg(figure)
    above = figure.add_gridspec(1, len(shown), left=0.06, right=0.98, top=0.85, bottom=0.60, wspace=0.25)
    below = figure.add_gridspec(1, 2, width_ratios=(3, 2), left=0.06, right=0.98, top=0.49, bottom=0.07)
    top = _draw_nodes([figure.add_subplot(above[0, k]) for k in range(len(shown))], shown, trials)
    mean, heldout = figure.add_subplot(below[0, 0]), figure.add_subplot(below[0, 1])
    for place, name in enumerate(names):
        own = [trial for trial in trials if trial.configuration == name]
        colour = _COLOURS[place % len(_COLOURS)]
        _draw_mean(mean, own, colour)
        _draw_heldout(heldout, own, colour)
    mean.set_title("Who earns most while learning?", loc="left", weight="bold")
    mean.set_ylabel(f"own reward, moving average of {smoothing_rounds(trials[0].rounds)} rounds")
    heldout.set_title("Does it hold on tasks nobody trained on?", loc="left", weight="bold")
    heldout.set_ylabel("held-out reward")
    for axes in (mean, heldout, *top):
        _dress(axes)
    mean.legend(loc="upper left", frameon=False, labelcolor="linecolor")
    figure.text(0.06, 0.95, plain(title, 120), fontsize=18, weight="bold", parse_math=False)
    png = BytesIO()
    canvas.print_png(png, metadata={"Software": None})
    return png.getvalue()


def _draw_nodes(
    panels: Sequence[Axes], names: Sequence[str], trials: Sequence[TrialResult]
) -> Sequence[Axes]:
    """Of the first seed: with all of them nobody could tell the nodes apart."""
    seed = min(trial.seed for trial in trials)
    highest = 0.0
    for place, (axes, name) in enumerate(zip(panels, names, strict=True)):
        axes.set_title(plain(name, TITLES // len(panels)), loc="left", fontsize=11, parse_math=False)
        for trial in trials:
            if trial.configuration == name and trial.seed == seed:
                for curve in trial.own_curves:
                    points = _smoothed(curve, trial)
                    highest = max([highest, *(value for _, value in points)])
                    axes.plot(*_columns(points), color=_COLOURS[place % len(_COLOURS)], linewidth=0.9)
    panels[0].text(
        0, 1.16, f"Every node, seed {seed}", transform=panels[0].transAxes, fontsize=12, weight="bold"
    )
    for axes in panels:
        axes.set_ylim(0, max(1e-3, 1.05 * highest))
    return panels


def _draw_mean(axes: Axes, trials: Sequence[TrialResult], colour: str) -> None:
    curves = [_smoothed(curve, trial) for trial in trials for curve in trial.own_curves]
    length = min(map(len, curves))
    if not length:
        return
    rounds = [round_ for round_, _ in curves[0][:length]]
    columns = list(zip(*([value for _, value in curve[:length]] for curve in curves), strict=True))
    means = [sum(values) / len(values) for values in columns]
    axes.fill_between(
        rounds, list(map(min, columns)), list(map(max, columns)), color=colour, alpha=0.10, linewidth=0
    )
    name = plain(trials[0].configuration, 30)
    axes.plot(rounds, means, color=colour, linewidth=2.4, label=f"{name}: {means[-1]:.3f}")


def _draw_heldout(axes: Axes, trials: Sequence[TrialResult], colour: str) -> None:
    rounds = trials[0].heldout.rounds
    columns = list(zip(*(trial.heldout.curve for trial in trials), strict=True))
    means = [sum(values) / len(values) for values in columns]
    axes.fill_between(
        rounds, list(map(min, columns)), list(map(max, columns)), color=colour, alpha=0.10, linewidth=0
    )
    axes.plot(rounds, means, color=colour, linewidth=2.4)


def _smoothed(curve: Sequence[float], trial: TrialResult) -> list[tuple[int, float]]:
    """A moving average, from where the first is whole."""
    span = max(1, smoothing_rounds(trial.rounds) // trial.stride)
    sums = list(chain([0.0], _running(curve)))
    return [
        (min(trial.rounds, k * trial.stride), (sums[k] - sums[k - span]) / span)
        for k in range(span, len(sums))
    ]


def _running(values: Sequence[float]) -> list[float]:
    total = 0.0
    return [total := total + value for value in values]


def _columns(points: Sequence[tuple[int, float]]) -> tuple[list[int], list[float]]:
    return [round_ for round_, _ in points], [value for _, value in points]


def _dress(axes: Axes) -> None:
    axes.grid(axis="y", color="#E6E6E6", linewidth=0.8)
    axes.set_xlabel("round")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
