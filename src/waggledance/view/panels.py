"""The terminal's panels: each answers the question that its title asks.

States, a width and a height come in; `Text` lines go out, never more than the height. Every text that a node
or a peer wrote passes through `text.plain`. Must not know of screens, refreshing or time.
"""

from collections.abc import Mapping, Sequence
from itertools import zip_longest

from rich.text import Text

from waggledance.rollout import name_of
from waggledance.view.curve import Point, smoothing_rounds
from waggledance.view.plot import Series, draw, spark
from waggledance.view.state import NodeState, Quote, SwarmState
from waggledance.view.tally import heldout, mean_own_curve, own_curves, progress
from waggledance.view.text import plain, safe, short_names

Swarms = Mapping[str, SwarmState]
"""Label → state, in the order they are compared: the one in question comes last."""

_STYLES = ("orange1", "green3", "magenta", "grey70")
LAST_STYLE = "bold deep_sky_blue1"
QUIET = "grey58"
SHADES = " ░▒▓█"
_CELL = 19
"""One node's line in one swarm: round, own reward now, held-out reward before and now."""


def styles(labels: Sequence[str]) -> dict[str, str]:
    shown = {label: _STYLES[place % len(_STYLES)] for place, label in enumerate(labels)}
    return shown | ({labels[-1]: LAST_STYLE} if labels else {})


def fitted(line: Text, width: int) -> Text:
    fitting = line.copy()
    fitting.end = "\n"
    fitting.truncate(width, overflow="crop", pad=True)
    return fitting


def beside(left: Sequence[Text], right: Sequence[Text], left_width: int, right_width: int) -> list[Text]:
    rows = zip_longest(left, right, fillvalue=Text())
    return [fitted(a, left_width) + Text("  ") + fitted(b, right_width) for a, b in rows]


def own_rewards(swarms: Swarms, width: int, height: int) -> list[Text]:
    """Own reward per round, the mean over each swarm's nodes, with its newest value in the legend."""
    style_of = styles(list(swarms))
    rounds = progress(swarms.values()).rounds
    smoothing = smoothing_rounds(rounds)
    curves = {label: mean_own_curve(swarm, smoothing) for label, swarm in swarms.items()}
    dashed = {label: place < len(swarms) - 1 for place, label in enumerate(swarms)}
    legend = _legend(curves, dashed, style_of)
    question = "Does sharing help?" if len(swarms) > 1 else "Is it learning?"
    details = ("own reward per round", "own reward")
    if smoothing > 1:
        details = (f"own reward per round, moving average of {smoothing}", *details)
    head = title(question, details, width - legend.cell_len).append_text(legend)
    series = [Series(label, points, dashed[label]) for label, points in curves.items()]
    rows = draw(series, width, max(1, height - 1), x_end=float(rounds), x_name="round")
    lines = [Text.assemble(*((text, style_of.get(name, QUIET)) for text, name in row)) for row in rows]
    return [head, *lines][:height]


def nodes(swarms: Swarms, width: int, height: int) -> list[Text]:
    """A line per node and its twin, which has the same place in the other swarm."""
    style_of = styles(list(swarms))
    twins = list(zip_longest(*(swarm.in_order for swarm in swarms.values())))
    names = short_names((_name(row) for row in twins), 4)
    cell_width = max(_CELL, (width - 4) // max(1, len(swarms)) - 2)
    # One scale for all sparks: a curve that looks as high as its neighbour is as high.
    top = max((value for swarm in swarms.values() for _, value in _own_points(swarm)), default=0.0)
    head = Text("node", QUIET)
    for label in swarms:
        head.append(f"{plain(label, 6):>6}", style_of[label])
        head.append(f"{'own':>5}{'held-out':>10}".ljust(cell_width - 4), QUIET)
    lines = [title("How is each node doing?", (), width), head]
    for row in twins[: max(0, height - len(lines))]:
        line = Text(f"{names[_name(row)]:<4}")
        for label, node in zip(swarms, row, strict=True):
            line.append("  ").append_text(_node_cell(node, cell_width, style_of[label], top))
        lines.append(line)
    return with_rest_counted(lines[:height], len(twins) + 2 - height)


def takers_and_givers(swarm: SwarmState, width: int, height: int) -> list[Text]:
    """Of what each node took from others lately, the share that each author wrote, in percent."""
    takers = [node for node in swarm.in_order if node.taken_by_round]
    taken = {node.author: node.taken_recently for node in takers}
    givers = sorted(
        {name for counts in taken.values() for name in counts}, key=lambda name: (len(name), name)
    )
    head = title("Who learns from whom?", ("% of what each took lately", "in %"), width)
    if not givers:
        return [head, Text("nobody has taken a group yet", QUIET)][:height]
    cell = 4 if width >= 5 + 4 * len(givers) else 3
    shown = givers[: max(1, (width - 5) // cell)]
    names = short_names([*givers, *taken], 3)
    fair = 1 / max(1, len(givers) - (1 if set(taken) & set(givers) else 0))
    lines = [head, Text("from ", QUIET) + Text("".join(f"{names[name]:>{cell}}" for name in shown))]
    for node in takers[: max(0, height - len(lines))]:
        shares = _shares(taken[node.author], shown)
        cells = (
            _own_place(cell) if name == node.author else _share_cell(share, fair, cell)
            for name, share in zip(shown, shares, strict=True)
        )
        lines.append(Text(f"{names[node.author]:>4} ") + Text().join(cells))
    return with_rest_counted(lines[:height], len(takers) + 2 - height)


def newest_answers(swarms: Swarms, width: int, height: int) -> list[Text]:
    """The newest rollouts that earned something: each author's newest, on two lines where there is room."""
    style_of = styles(list(swarms))
    told = _newest_of_each_author(swarms)
    lines = [title("What earned a reward just now?", (), width)]
    if not told:
        lines.append(Text("nothing yet: at the start nearly every answer is wrong", QUIET))
    for label, quote in told[: max(0, height - 1)]:
        roomy = height > 2 * len(told)
        head = _answer_head(label, quote, style_of[label], roomy or width >= 100)
        if roomy:
            lines += [head, Text("     ").append_text(answer(quote, width - 5))]
        else:
            lines.append(head.append_text(answer(quote, width - head.cell_len)))
    return lines[:height]


def failures(swarms: Swarms, width: int) -> list[Text]:
    """At most two lines: a screen full of the same error says no more."""
    failed = [
        f"{label} {name_of(node.author)} failed: {node.error}"
        for label, swarm in swarms.items()
        for node in swarm.in_order
        if node.error is not None
    ]
    return [safe(line, width, "bold red") for line in failed[:2]]


def reward_text(reward: float | None) -> str:
    """Three decimals in four characters: .083, 1.00."""
    if reward is None:
        return "–"
    return f"{reward:.3f}"[1:] if 0.0 <= reward < 0.9995 else f"{reward:.2f}"


def _legend(
    curves: Mapping[str, Sequence[Point]], dashed: Mapping[str, bool], style_of: Mapping[str, str]
) -> Text:
    legend = Text()
    for label, points in curves.items():
        value = reward_text(points[-1][1] if points else None)
        legend.append(f"  {'╌╌' if dashed[label] else '━━'} {plain(label, 12)} {value}", style_of[label])
    return legend.append(_times(curves))


def _times(curves: Mapping[str, Sequence[Point]]) -> str:
    """How many times the first's newest value the last's is, where two are compared and the first has any."""
    if len(curves) != 2 or not all(curves.values()):
        return ""
    alone, together = (points[-1][1] for points in curves.values())
    return f"  {together / alone:.1f}×" if alone >= 0.0005 else ""


def _newest_of_each_author(swarms: Swarms) -> list[tuple[str, Quote]]:
    """Newest round first, within a round the last swarm first.

    Clocks of nodes say nothing of order between them; so which node begins moves on with the rounds, and a
    short panel shows everybody in turn.
    """
    told: list[tuple[int, int, int, str, Quote]] = []
    for place, (label, swarm) in enumerate(swarms.items()):
        for turn, node in enumerate(swarm.in_order):
            newest = {quote.said.author: quote for quote in node.rewarded}
            told.extend(
                (-quote.round, -place, (turn - quote.round) % len(swarm.nodes), label, quote)
                for quote in newest.values()
            )
    return [(label, quote) for *_, label, quote in sorted(told, key=lambda one: one[:3])]


def _answer_head(label: str, quote: Quote, style: str, roomy: bool) -> Text:
    head = Text(f"{quote.round:>4} " if roomy else "", QUIET)
    head.append_text(fitted(safe(f"{label} {name_of(quote.said.author)}", 10, style), 10))
    source_width = 23 if roomy else 12
    head.append_text(fitted(safe(quote.said.source, source_width, QUIET), source_width))
    return head.append(f" {reward_text(quote.said.reward):>4} ", "bold green3")


def answer(quote: Quote, width: int) -> Text:
    """Question → answer; the question is cut first, but never to less than half."""
    said = quote.said
    asked, answered = said.question.strip(), said.text.strip()
    told = safe(answered, max(width // 2, width - len(asked) - 3), "bold")
    question = safe(asked, max(0, width - told.cell_len - 3))
    return question.append(" → ", QUIET).append_text(told)


def _node_cell(node: NodeState | None, width: int, style: str, top: float) -> Text:
    if node is None:
        return Text("not started".ljust(width), QUIET)
    if node.error is not None:
        return fitted(safe(f"failed: {node.error}", width, "bold red"), width)
    before = reward_text(node.heldout_start)
    now = reward_text(heldout(node)) if node.evaluations > 1 else "…"
    own = reward_text(node.own.recent(smoothing_rounds(node.rounds)))
    cell = Text(f"{node.own.rounds:>4}")
    cell.append(f" {own:>4}", style).append(f" {before:>4}→{now:<4}")
    room = width - _CELL - 1
    if room >= 6:
        values = [value for _, value in _own_points(SwarmState({node.author: node}))]
        cell.append(" " + spark(values, min(room, 40), top), style)
    return fitted(cell, width)


def _own_points(swarm: SwarmState) -> list[Point]:
    rounds = max((node.rounds for node in swarm.nodes.values()), default=0)
    return [point for points in own_curves(swarm, smoothing_rounds(rounds)) for point in points]


def _shares(counts: Mapping[str, int], names: Sequence[str]) -> list[float]:
    whole = sum(counts.values())
    return [counts.get(name, 0) / whole if whole else 0.0 for name in names]


def _share_cell(share: float, fair: float, width: int) -> Text:
    """Shaded by how it compares with an equal share: that is the middle shade, twice as much the darkest."""
    percent = f"{100 * share:.0f}"
    shade = SHADES[min(4, round(2 * share / fair))] if len(percent) < 3 else ""
    return Text(" " * (width - 3)).append(shade, LAST_STYLE).append(f"{percent:>2}")


def _own_place(width: int) -> Text:
    return Text(f"{'·':>{width}}", QUIET)


def _name(row: Sequence[NodeState | None]) -> str:
    return next((node.author for node in reversed(row) if node is not None), "")


def title(question: str, details: Sequence[str], width: int) -> Text:
    """The question and the longest of the details that fits beside it."""
    fitting = next((detail for detail in details if len(question) + 1 + len(detail) <= width), "")
    return fitted(Text(question, "bold").append(f" {fitting}", QUIET), max(0, width))


def with_rest_counted(lines: list[Text], left_out: int) -> list[Text]:
    """The last line gives way to the number of those that found no room, itself among them."""
    return [*lines[:-1], Text(f"… and {left_out + 1} more", QUIET)] if left_out > 0 and lines else lines
