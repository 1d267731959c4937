"""The live view: states in, a screen that fits the terminal out; plain lines where there is no terminal.

`render` is pure and never higher or wider than it is told; `DemoView` puts it on the screen. All of it goes
to standard error: standard output is for the result. Must not know where the events come from.
"""

from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from waggledance.rollout import name_of
from waggledance.view.curve import smoothing_rounds
from waggledance.view.panels import (
    Swarms,
    beside,
    failures,
    fitted,
    newest_answers,
    nodes,
    own_rewards,
    takers_and_givers,
)
from waggledance.view.portrait import doings, rewards, sayings, sharers
from waggledance.view.state import NodeState
from waggledance.view.tally import Progress, mean_own_curve, progress
from waggledance.view.text import plain

LINE_EVERY_SECONDS = 5.0
SILENT_SECONDS = 60.0
"""Silence that is told: a node that is at work tells something sooner, or it measures a large model."""

_LEAST_PLOT_HEIGHT = 6
_LEAST_NODES_WIDTH = 46
_LEAST_SHARING_WIDTH = 28
"""Room for its title, however few nodes there are."""
_TWO_COLUMNS_FROM = 150


def render(
    swarms: Swarms,
    width: int,
    height: int,
    elapsed_seconds: float,
    left_seconds: float | None = None,
    silent_seconds: float = 0.0,
) -> Group:
    """The whole screen. Without `left_seconds` the time left is guessed from what the rounds took so far."""
    wide = width >= _TWO_COLUMNS_FROM and height >= 20
    alone = _alone(swarms)
    time_words = _time_words(progress(swarms.values()), elapsed_seconds, left_seconds, silent_seconds)
    top = [headline(swarms, width, time_words), *failures(swarms, width)]
    room = max(0, height - len(top))
    if alone is None:
        lines = [*top, *(_two_columns if wide else _one_column)(swarms, width, room)]
    else:
        lines = [*top, *(_wide_portrait if wide else _tall_portrait)(alone, width, room)]
    return Group(*(fitted(line, width) for line in lines[:height]))


def headline(swarms: Swarms, width: int, time_words: str) -> Text:
    now = progress(swarms.values())
    failed = sum(node.error is not None for swarm in swarms.values() for node in swarm.nodes.values())
    before = Text(f"round {now.round}/{now.rounds} ", "bold")
    after = Text(f" {now.fraction:4.0%}  {time_words}")
    if failed:
        after.append(f"  {failed} failed", "bold red")
    bar_width = max(0, width - before.cell_len - after.cell_len)
    done = round(bar_width * now.fraction)
    return before.append("━" * done, "green3").append("─" * (bar_width - done), "grey37").append_text(after)


def plain_line(
    swarms: Swarms,
    elapsed_seconds: float,
    left_seconds: float | None = None,
    silent_seconds: float = 0.0,
) -> str:
    """The same in one line without a control code: round 40/120  silo 0.021  swarm 0.083  2:05 left."""
    now = progress(swarms.values())
    parts = [f"round {now.round}/{now.rounds}"]
    for label, swarm in swarms.items():
        points = mean_own_curve(swarm, smoothing_rounds(now.rounds))
        parts.append(f"{plain(label, 20)} {points[-1][1]:.3f}" if points else f"{plain(label, 20)} –")
    parts.extend(
        f"{plain(label, 20)} {plain(name_of(node.author), 20)} failed: {plain(node.error, 100)}"
        for label, swarm in swarms.items()
        for node in swarm.in_order
        if node.error is not None
    )
    return "  ".join([*parts, _time_words(now, elapsed_seconds, left_seconds, silent_seconds)])


class DemoView:
    """Shows states while something runs. Call `show` as often as is pleasant; it only draws."""

    def __init__(self, console: Console | None = None, note: str = "") -> None:
        """The note stands below all else: where the page is, say."""
        self._note = note
        self._console = console or Console(stderr=True)
        self._live: Live | None = None
        self._shown: tuple[Swarms, float, float | None, float] | None = None
        self._next_line_seconds = 0.0

    def __enter__(self) -> "DemoView":
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            # A screen of its own: what a resize garbles vanishes with it, and the shell keeps its history.
            self._live = Live(
                console=self._console,
                screen=True,
                auto_refresh=False,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.__enter__()
        elif self._note:
            self._print(self._note)
        return self

    def show(
        self,
        swarms: Swarms,
        elapsed_seconds: float,
        left_seconds: float | None = None,
        silent_seconds: float = 0.0,
    ) -> None:
        # Its own mapping: the states in it are frozen, the one that was given may go on.
        self._shown = shown = (dict(swarms), elapsed_seconds, left_seconds, silent_seconds)
        if self._live is not None:
            width, height = self._console.size
            noted = min(height - 1, 1) if self._note else 0
            picture = render(shown[0], width, height - noted, *shown[1:])
            note = fitted(Text(plain(self._note, width), "grey58"), width)
            self._live.update(Group(picture, note) if noted else picture, refresh=True)
        elif elapsed_seconds >= self._next_line_seconds:
            self._next_line_seconds = elapsed_seconds + LINE_EVERY_SECONDS
            self._print(plain_line(*shown))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leaves the last picture behind: the whole of it on a terminal, its line otherwise."""
        if self._live is not None:
            self._live.__exit__(kind, error, trace)
        if self._shown is None or error is not None:
            return
        if self._live is None:
            self._print(plain_line(*self._shown))
            return
        width, height = self._console.size
        self._console.print(render(self._shown[0], width, min(height - 1, 40), *self._shown[1:]))

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, emoji=False, soft_wrap=True)


def _one_column(swarms: Swarms, width: int, height: int) -> list[Text]:
    """Curves over nodes and who learns from whom over answers; what finds no room is left out from below."""
    airy = height >= 30
    count = _nodes(swarms)
    answers_height = 0 if height < 20 else max(4, height // 5)
    middle_height = min(count + 2, height - answers_height - _LEAST_PLOT_HEIGHT)
    if middle_height < 4:
        middle_height = 0
    plot_height = max(0, height - answers_height - middle_height - 3 * airy)
    gap = [Text()] * airy
    lines = [*gap, *own_rewards(swarms, width, plot_height)]
    if middle_height:
        lines += [*gap, *_nodes_beside_sharing(swarms, width, middle_height)]
    if answers_height:
        lines += [*gap, *newest_answers(swarms, width, answers_height)]
    return lines


def _nodes_beside_sharing(swarms: Swarms, width: int, height: int) -> list[Text]:
    sharing_width = max(_LEAST_SHARING_WIDTH, 5 + _nodes(swarms) * (4 if width >= 110 else 3))
    left_width = width - 2 - sharing_width
    sharing = list(swarms.values())[-1:]
    if left_width < _LEAST_NODES_WIDTH or not sharing:
        return nodes(swarms, width, height)
    left = nodes(swarms, left_width, height)
    return beside(left, takers_and_givers(sharing[0], sharing_width, height), left_width, sharing_width)


def _two_columns(swarms: Swarms, width: int, height: int) -> list[Text]:
    left_width = width * 3 // 5
    right_width = width - left_width - 2
    nodes_height = min(_nodes(swarms) + 2, height - _LEAST_PLOT_HEIGHT - 2)
    left = own_rewards(swarms, left_width, height - nodes_height - 2)
    left = [Text(), *left, Text(), *nodes(swarms, left_width, nodes_height)]
    last = list(swarms.values())[-1:]
    sharing = takers_and_givers(last[0], right_width, height // 2) if last else []
    answers = newest_answers(swarms, right_width, height - len(sharing) - 2)
    return beside(left, [Text(), *sharing, Text(), *answers], left_width, right_width)


def _alone(swarms: Swarms) -> NodeState | None:
    """The node, where there is only one to look at."""
    nodes_ = [node for swarm in swarms.values() for node in swarm.nodes.values()]
    return nodes_[0] if len(swarms) == 1 and len(nodes_) == 1 else None


def _tall_portrait(node: NodeState, width: int, height: int) -> list[Text]:
    """Curves over what it does over who gives over what is said; what finds no room goes from below."""
    gap = [Text()] * (height >= 30)
    doing = doings(node, width, 5 if height >= 16 else 0)
    giving = sharers(node, width, max(3, height // 5) if height >= 20 else 0)
    saying = sayings(node, width, max(4, height // 4) if height >= 18 else 0)
    below = [line for part in (doing, giving, saying) if part for line in (*gap, *part)]
    return [*gap, *rewards(node, width, max(0, height - len(below) - len(gap))), *below]


def _wide_portrait(node: NodeState, width: int, height: int) -> list[Text]:
    left_width = width * 3 // 5
    right_width = width - left_width - 2
    doing = doings(node, left_width, 5)
    left = [Text(), *rewards(node, left_width, height - len(doing) - 2), Text(), *doing]
    giving = sharers(node, right_width, height // 2 - 1)
    saying = sayings(node, right_width, height - len(giving) - 2)
    return beside(left, [Text(), *giving, Text(), *saying], left_width, right_width)


def _nodes(swarms: Swarms) -> int:
    return max((len(swarm.nodes) for swarm in swarms.values()), default=0)


def _time_words(
    now: Progress, elapsed_seconds: float, left_seconds: float | None, silent_seconds: float
) -> str:
    if now.ended:
        return f"done in {clock(elapsed_seconds)}"
    if silent_seconds >= SILENT_SECONDS:
        return f"silent for {clock(silent_seconds)}"
    if left_seconds is None and now.fraction >= 1.0:
        return "finishing"
    if left_seconds is None and now.fraction > 0.0:
        left_seconds = elapsed_seconds * (1.0 - now.fraction) / now.fraction
    return "starting" if left_seconds is None else f"{clock(left_seconds)} left"


def clock(seconds: float) -> str:
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
