"""The terminal's panels for one node alone: is it learning, what is it doing, who gives, what does it say.

A node's state, a width and a height come in; `Text` lines go out, never more than the height. Every text that
a node or a peer wrote passes through `text.plain`. Must not know of screens, refreshing or time.
"""

from collections.abc import Mapping

from rich.text import Text

from waggledance.rollout import Author
from waggledance.view.curve import Curve, Point, smoothed, smoothing_rounds
from waggledance.view.panels import LAST_STYLE, QUIET, answer, fitted, reward_text, title, with_rest_counted
from waggledance.view.plot import Series, draw
from waggledance.view.state import NodeState, Quote
from waggledance.view.text import plain, safe, short_names
from waggledance.view.words import PHASES, reason_words, size_words

_STYLES = {"held-out": "green3", "trained": "orange1", "own": LAST_STYLE}
"""In the order they are drawn: own reward lies on top."""
_PEER_NAME = 14


def rewards(node: NodeState, width: int, height: int) -> list[Text]:
    """The three rewards in one plot, each with its newest value in the legend."""
    smoothing = smoothing_rounds(node.rounds)
    curves = {
        "held-out": list(node.heldout.points),
        "trained": _smooth(node.trained, smoothing),
        "own": _smooth(node.own, smoothing),
    }
    legend = Text()
    for name in reversed(curves):
        newest = reward_text(curves[name][-1][1] if curves[name] else None)
        legend.append(f"  {'╌' if name == 'trained' else '━'} {name} {newest}", _STYLES[name])
    span = f"moving average of {smoothing}" if smoothing > 1 else ""
    head = title("Is it learning?", (span,), max(15, width - legend.cell_len)).append_text(legend)
    series = [Series(name, points, name == "trained") for name, points in curves.items()]
    rows = draw(series, width, max(1, height - 1), x_end=float(node.rounds), x_name="round")
    lines = [Text.assemble(*((text, _STYLES.get(name, QUIET)) for text, name in row)) for row in rows]
    return [head, *lines][:height]


def doings(node: NodeState, width: int, height: int) -> list[Text]:
    """Phase, mix, model; how fast and how large."""
    lines = [title("What is it doing?", (), width)]
    weights = node.started.weights if node.started else 0
    sized = f" of {size_words(weights)} weights" if weights else ""
    lines.append(safe(f"{PHASES[node.phase]} · round {node.round}", width, "bold"))
    lines.append(safe(f"model {node.model or '–'}{sized} · mix {node.mix or '–'}", width))
    lines.append(safe(" · ".join(_costs(node)), width))
    gave = f"gave {node.groups_shared} groups ({size_words(node.bytes_shared, 'B')})"
    took = f"took {sum(node.taken.values())} of {node.heard} heard"
    lines.append(safe(f"{gave} · {took} · {node.pool} in the pool", width))
    return lines[:height]


def sharers(node: NodeState, width: int, height: int) -> list[Text]:
    """A line a peer: what was taken from it, its share of all, what of it was refused."""
    lines = [title("Who gives, and what was refused?", (), width)]
    if node.refused:
        counts = sorted(node.refused.items(), key=lambda one: -one[1])
        told = ", ".join(f"{reason} {count} ({reason_words(reason)})" for reason, count in counts)
        lines.append(safe(f"refused: {told}", width, "orange1"))
    peers = _peers(node)
    if not peers:
        lines.append(Text("nobody else is here", QUIET))
    names = short_names(peers, _PEER_NAME)
    whole = max(1, sum(node.taken.values()))
    for peer in peers[: max(0, height - len(lines))]:
        lines.append(_peer_line(node, peer, names[peer], whole, width))
    return with_rest_counted(lines[:height], len(peers) + 1 + bool(node.refused) - height)


def sayings(node: NodeState, width: int, height: int) -> list[Text]:
    """The newest rollouts, right or wrong, its own or taken: task, reward, author, text."""
    lines = [title("What is being said?", ("newest first",), width)]
    if not node.quotes:
        lines.append(Text("nothing yet", QUIET))
    for quote in reversed(node.quotes):
        head = _quote_head(quote, node.author)
        lines.append(head.append_text(answer(quote, max(0, width - head.cell_len))))
    return [fitted(line, width) for line in lines[:height]]


def _smooth(curve: Curve, rounds: int) -> list[Point]:
    return smoothed(curve.points, max(1, rounds // curve.stride))


def _costs(node: NodeState) -> list[str]:
    told: list[str] = []
    seconds = node.round_seconds.recent(10)
    if seconds:
        told.append(f"{60 / seconds:.1f} rounds a minute")
    if node.seconds_generating > 0:
        told.append(f"{node.tokens_generated / node.seconds_generating:,.0f} tokens/s")
    if node.memory_bytes:
        told.append(f"{size_words(node.memory_bytes, 'B')} memory")
    busy = node.seconds_generating + node.seconds_learning
    if busy > 0:
        told.append(f"{node.seconds_learning / busy:.0%} of it learning")
    return told or ["–"]


def _peers(node: NodeState) -> list[Author]:
    """Whoever is here, gave or was refused: givers first, in the order of what was taken."""
    known = {Author(name) for name in (*node.met, *node.taken, *node.refused_of)} - {node.author}
    return sorted(known, key=lambda name: (-node.taken.get(name, 0), len(name), name))


def _peer_line(node: NodeState, peer: Author, name: str, whole: int, width: int) -> Text:
    here = node.met.get(peer)
    taken = node.taken.get(peer, 0)
    refused: Mapping[str, int] = node.refused_of.get(peer, {})
    line = Text("● " if here else "○ ", "green3" if here else QUIET)
    line.append_text(fitted(safe(name, _PEER_NAME), _PEER_NAME + 1))
    line.append(f"{taken:>6} taken {taken / whole:>4.0%}", LAST_STYLE if taken else QUIET)
    if refused:
        told = ", ".join(f"{plain(reason, 16)} {count}" for reason, count in sorted(refused.items()))
        line.append_text(safe(f"  refused {told}", max(0, width - line.cell_len), "orange1"))
    if here:
        line.append_text(safe(f"  {here.met.model}", max(0, width - line.cell_len), QUIET))
    return fitted(line, width)


def _quote_head(quote: Quote, node: Author) -> Text:
    said = quote.said
    head = Text(f"{quote.round:>4} ", QUIET)
    style = "bold green3" if said.reward > 0 else "orange1"
    head.append(f"{reward_text(said.reward):>4} ", style)
    who = "itself" if said.author == node else short_names([said.author], 9)[said.author]
    head.append_text(fitted(safe(who, 9), 10))
    return head.append_text(fitted(safe(said.source, 16, QUIET), 17))
