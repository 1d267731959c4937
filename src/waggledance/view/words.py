"""What a state means, in plain words: for the page, the report and the terminal alike.

States in, sentences out, for people who have never heard of rewards. Sentences repeat no text that a node or
a peer wrote.
"""

from collections.abc import Mapping

from waggledance.view import tally
from waggledance.view.curve import smoothing_rounds
from waggledance.view.state import Phase, SwarmState

PHASES: Mapping[Phase, str] = {
    "start": "starting",
    "measure": "measuring itself on held-out questions",
    "generate": "answering its own questions",
    "verify": "checking its answers",
    "share": "choosing what to share",
    "sample": "looking at what others shared",
    "learn": "learning",
    "done": "done",
    "failed": "failed",
}

REASONS: Mapping[str, str] = {
    "seal": "not sealed with this swarm's key",
    "forged": "not signed by the one it claims to be from",
    "grant": "its author holds no seat in this swarm",
    "expired": "its author's seat has expired",
    "replay": "came before",
    "own": "somebody else speaks with this node's key",
    "malformed": "not a message",
    "bounds": "beyond a limit",
    "oversize": "too large",
    "source": "a task source this node does not have",
    "digest": "a task source this node has in another version",
    "index": "a held-out question: nobody may train on it",
    "task": "a question that cannot be built here",
    "other": "made-up reasons, counted together",
}


def reason_words(reason: str) -> str:
    if reason.startswith("version "):
        return "of another major version"
    return REASONS.get(reason, "refused")


def right_share(swarm: SwarmState) -> float | None:
    """What the newest rounds' fresh answers earned: where the curve ends that the views draw; before there is
    one, the mean over nodes."""
    smoothing = smoothing_rounds(tally.progress([swarm]).rounds)
    curve = tally.mean_own_curve(swarm, smoothing)
    if curve:
        return curve[-1][1]
    spread = tally.spread(node.own.recent(smoothing) for node in swarm.nodes.values())
    return spread.mean if spread else None


def verdict(swarms: Mapping[str, SwarmState]) -> str:
    """One or two sentences that say how it stands; the swarm in question comes last."""
    if not swarms or not any(swarm.nodes for swarm in swarms.values()):
        return "Nothing has started yet."
    *others, last = swarms.values()
    together = right_share(last)
    if together is None:
        return "The first questions are being asked."
    count = len(last.nodes)
    who = "This model earns" if count == 1 else f"These {count} models earn"
    now = f"{who} the reward on {together:.1%} of {'its' if count == 1 else 'their'} fresh answers"
    alone = right_share(others[0]) if len(swarms) == 2 else None
    if alone is not None:
        return f"{now}; the same models, each alone, on {alone:.1%}{_times(together, alone)}."
    started = tally.spread(node.heldout_start for node in last.nodes.values())
    newest = tally.spread(map(tally.heldout, last.nodes.values()))
    if started is None or newest is None:
        return f"{now}."
    return f"{now}. On questions nobody trains on: {started.mean:.1%} before, {newest.mean:.1%} now."


def _times(together: float, alone: float) -> str:
    return f" – {together / alone:.1f} times as many" if 0.0005 <= alone < together else ""


def size_words(count: float, unit: str = "") -> str:
    """1234567 as 1.2 M: for what is looked at, not reckoned with."""
    for power, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= power:
            return f"{count / power:.3g} {letter}{unit}"
    return (
        f"{count:.0f} {unit}".rstrip()
        if count >= 10 or count == int(count)
        else f"{count:.1f} {unit}".rstrip()
    )
