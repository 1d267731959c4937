"""The report: a run as one HTML file that a person can mail, without a script or a link to anything else.

States, settings and pictures in, HTML out. Reads the same scene as the page; every text is made plain first
and escaped after. What it cannot know it leaves out.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from html import escape

import msgspec

from waggledance.view import scene, tally
from waggledance.view.scene import Swarms
from waggledance.view.state import NodeState, SwarmState
from waggledance.view.terminal import clock
from waggledance.view.words import reason_words, size_words, verdict

QUOTES_LIMIT = 16
ROWS_LIMIT = 100

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;color:#1f1c17;background:#fff;max-width:1000px;margin:0 auto;
padding:24px}
h1{font-size:1.5rem;margin:0 0 4px}h2{font-size:1.15rem;margin:34px 0 6px}
.lead{font-size:1.2rem;margin:12px 0}.how{color:#625c51;font-size:.875rem;margin:0 0 8px}
img{max-width:100%;height:auto}
table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums;display:block;overflow-x:auto}
th,td{text-align:left;padding:4px 16px 4px 0;border-bottom:1px solid #e2ddd2;white-space:nowrap}
th{color:#625c51}pre{background:#f6f4ef;padding:12px;overflow-x:auto;font-size:.85rem}
.said{border-left:4px solid #a83e00;background:#faf8f4;padding:6px 12px;margin:8px 0;white-space:pre-wrap;
overflow-wrap:anywhere;font-size:.875rem}
.said.earned{border-color:#00704f}.said b{font-weight:400;color:#625c51}
"""


class Facts(msgspec.Struct, frozen=True):
    """What a state does not hold."""

    when: str
    machine: str
    versions: Mapping[str, str]
    settings: Mapping[str, str]
    """By label, as TOML, without secrets."""


def report(
    run: str, swarms: Swarms, seconds: float, facts: Facts, pictures: Sequence[tuple[str, bytes]]
) -> str:
    """Pictures are PNGs with their titles."""
    head = scene.head(run, swarms, seconds, None, 0.0)
    how_far = f"{head.round} of {head.rounds} rounds" + ("" if head.ended else ", not ended")
    parts = [
        f"<h1>{_text(run)}</h1>",
        _how(f"{facts.when} · {how_far} · {clock(seconds)} · {facts.machine}"),
        f"<p class=lead>{_text(verdict(swarms))}</p>",
        *(f"<p><strong>{_text(failed)}</strong></p>" for failed in head.failed),
        *(_picture(title, png) for title, png in pictures),
        _before_and_after(swarms),
        _trained(swarms),
        _tasks(swarms),
        _nodes(swarms),
        _giving(swarms),
        _refused(swarms),
        _cost(swarms, seconds),
        _said(swarms),
        _settings(facts),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'\">"
        f"<title>{_text(run)}</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body></html>\n"
    )


def _before_and_after(swarms: Swarms) -> str:
    rows: list[tuple[str, ...]] = []
    for label, swarm in swarms.items():
        nodes = swarm.in_order
        befores = [node for node in nodes if node.heldout_start is not None]
        nows = [node for node in nodes if tally.heldout(node) is not None]
        own = tally.spread(map(tally.own, nodes))
        trained = tally.spread(map(tally.trained, nodes))
        rows.append(
            (
                label,
                _percent(own.mean if own else None),
                _percent(trained.mean if trained else None),
                _interval([(node.heldout_start or 0.0, node.heldout_rollouts) for node in befores]),
                _interval([(tally.heldout(node) or 0.0, node.heldout_rollouts) for node in nows]),
            )
        )
    heads = ("", "fresh, all rounds", "trained on", "held out, before", "held out, at the end")
    how = (
        "The share of answers that earned the reward, mean over nodes. In brackets the 95 % interval "
        "(Wilson) over the held-out answers; answers to one question, and nodes of one swarm, hang together, "
        "so another run may differ by more."
    )
    return _section("Did it learn, and does it hold?", how, _table(heads, rows))


def _trained(swarms: Swarms) -> str:
    rows: list[tuple[str, ...]] = []
    for label, swarm in swarms.items():
        for started, nodes in _grouped(swarm).items():
            model, weights, sources, mix, completions, version = started
            rows.append((label, nodes, model, weights, mix, completions, sources, version))
    heads = ("", "nodes", "model", "weights", "mix", "answers a question", "kinds of question", "version")
    return _section("What was trained?", "", _table(heads, rows))


def _tasks(swarms: Swarms) -> str:
    tasks = scene.tasks(swarms)
    rows = [
        (task.source, *(_percent(value) for value in task.newest), _percent(task.heldout)) for task in tasks
    ]
    heads = ("", *swarms, f"held out, {list(swarms)[-1]}" if swarms else "")
    how = "The share of fresh answers that earned the reward in the newest rounds, by kind of question."
    return _section("Which kinds of question does it get right?", how, _table(heads, rows)) if rows else ""


def _nodes(swarms: Swarms) -> str:
    rows = [
        (
            f"{node.label} {node.name}",
            node.error or node.phase,
            f"{node.round}/{node.rounds}",
            _percent(node.own),
            _percent(node.heldout_start),
            _percent(node.heldout),
            f"{node.gave:,}",
            f"{node.took:,}",
            "–" if node.seconds is None else f"{node.seconds:.1f}",
        )
        for node in scene.nodes(swarms)
    ]
    heads = ("node", "", "round", "fresh", "held out, before", "now", "gave", "took", "s a round")
    return _section("How did each node do?", "", _table(heads, rows))


def _giving(swarms: Swarms) -> str:
    rows = [
        (
            f"{'●' if account.here else '○'} {account.name}",
            f"{account.taken:,}",
            _percent(account.share),
            ", ".join(f"{reason} {count}" for reason, count in account.refused.items()) or "–",
            account.model or "–",
        )
        for account in scene.ledger(_last(swarms))
    ]
    heads = ("who", "groups trained on", "of all", "refused", "model")
    how = "What others wrote and this swarm trained on. A filled dot was here at the end."
    return _section("Who gave, and was it of use?", how, _table(heads, rows)) if rows else ""


def _refused(swarms: Swarms) -> str:
    rows = [(one.reason, reason_words(one.reason), f"{one.total:,}") for one in scene.refusals(_last(swarms))]
    body = _table(("reason", "what it means", "how many"), rows) if rows else _how("Nothing.")
    return _section("What was refused, and why?", "", body)


def _cost(swarms: Swarms, seconds: float) -> str:
    rows: list[tuple[str, ...]] = []
    for label, swarm in swarms.items():
        spent = scene.effort({label: swarm})
        rows.append(
            (
                label,
                size_words(spent.tokens_generated),
                size_words(spent.tokens_trained),
                f"{spent.groups_shared:,}",
                size_words(spent.bytes_shared, "B"),
                size_words(spent.memory_bytes, "B"),
                clock(spent.cpu_seconds),
            )
        )
    heads = ("", "tokens written", "tokens learned from", "groups given", "sent", "memory", "processor time")
    return _section("What did it cost?", f"{clock(seconds)} by the clock.", _table(heads, rows))


def _said(swarms: Swarms) -> str:
    told = sorted(scene.told_since(swarms, {}), key=lambda one: (-one.round, -one.serial))[:QUOTES_LIMIT]
    quotes = "".join(
        f'<div class="said{" earned" if one.reward > 0 else ""}"><b>{_text(one.label)} {_text(one.author)} · '
        f"{_text(one.source)} · round {one.round} · earned {one.reward:g}\n{_text(one.question)}</b>\n"
        f"{_text(one.text)}</div>"
        for one in told
    )
    return _section("What was said at the end?", "", quotes) if quotes else ""


def _settings(facts: Facts) -> str:
    versions = _table(("", "version"), list(facts.versions.items()))
    texts = "".join(
        f"<p>{_text(label)}</p><pre>{_text(text)}</pre>" for label, text in facts.settings.items()
    )
    return _section("With which settings?", "", versions + texts)


def _grouped(swarm: SwarmState) -> dict[tuple[str, ...], str]:
    """Nodes that were started alike, as one row."""
    alike: dict[tuple[str, ...], list[NodeState]] = {}
    for node in swarm.in_order:
        if node.started is not None:
            one = node.started
            weights = size_words(one.weights) if one.weights else "–"
            key = (one.model, weights, ", ".join(one.sources), one.mix, str(one.completions), one.version)
            alike.setdefault(key, []).append(node)
    return {key: str(len(nodes)) for key, nodes in alike.items()}


def _interval(measured: Sequence[tuple[float, int]]) -> str:
    """The mean and its interval over all answers of all nodes."""
    count = sum(number for _, number in measured)
    if not measured:
        return "–"
    if not count:
        return _percent(sum(reward for reward, _ in measured) / len(measured))
    mean = sum(reward * number for reward, number in measured) / count
    low, high = tally.wilson(mean, count)
    return f"{_percent(mean)} ({_percent(low)} to {_percent(high)})"


def _last(swarms: Swarms) -> SwarmState:
    return list(swarms.values())[-1] if swarms else SwarmState()


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"


def _picture(title: str, png: bytes) -> str:
    return f'<p><img alt="{_text(title)}" src="data:image/png;base64,{base64.b64encode(png).decode()}"></p>'


def _section(question: str, how: str, body: str) -> str:
    return f"<h2>{_text(question)}</h2>\n{_how(how) if how else ''}{body}"


def _how(words: str) -> str:
    return f"<p class=how>{_text(words)}</p>"


def _table(heads: Iterable[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{_text(one)}</th>" for one in heads)
    body = "".join(
        f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in rows[:ROWS_LIMIT]
    )
    rest = len(rows) - ROWS_LIMIT
    more = f"<p class=how>… and {rest} more</p>" if rest > 0 else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _text(text: str) -> str:
    """Escaped; a control character that is no line's end is shown, not sent."""
    return escape("".join(letter if letter.isprintable() or letter == "\n" else "\ufffd" for letter in text))
