"""A model's card: what it was trained on, with whom, and what that came to. Figures of the run, no praise."""

import re
from pathlib import Path

from waggledance import __version__
from waggledance.config import NodeConfig
from waggledance.rollout import Author, name_of
from waggledance.view.state import NodeState
from waggledance.view.text import plain

TINY_LICENCE = "apache-2.0"
SMOLLM2_LICENCE, SMOLLM2_NAME = "apache-2.0", "HuggingFaceTB/SmolLM2-135M-Instruct"
GIVERS_SHOWN = 20
_FRONT = re.compile(r"\A---\n(.*?)\n---\n", re.DOTALL)
_LICENCE = re.compile(r"^license: *([A-Za-z0-9._-]+) *$", re.MULTILINE)


def card_of(config: NodeConfig, state: NodeState, licence: str | None) -> str:
    base = SMOLLM2_NAME if config.policy.model == "smollm2" else config.policy.model
    known = licence or licence_of(config.policy.model)
    front = ["---", f"license: {known or 'other'}", "library_name: transformers"]
    if "/" in base and not Path(base).expanduser().exists():
        front.append(f"base_model: {base}")
    front += ["tags: [waggledance, sapo, reinforcement-learning]", "---", ""]
    after = state.heldout.newest[1] if state.heldout.newest else None
    lines = [
        f"# {plain(config.name, 80)}",
        "",
        f"`{plain(base, 200)}`, post-trained with Waggledance {__version__} (arXiv 2509.08721): "
        f"{state.own.rounds} rounds of {config.learner.kind}, {config.mix.own} own and {config.mix.foreign} "
        "foreign groups each.",
        "",
        "| | |",
        "|---|---|",
        f"| tasks | {plain(', '.join(config.tasks), 400)} |",
        f"| completions | {config.policy.completions} a group, {config.policy.max_tokens} tokens at most |",
        f"| learning rate | {config.learner.learning_rate:g} |",
        f"| tokens generated, trained on | {state.tokens_generated:,}, {state.tokens_trained:,} |",
        f"| held-out reward before | {_reward(state.heldout_start)} |",
        f"| held-out reward after | {_reward(after)} |",
        f"| swarm | {_swarm(config, state)} |",
        f"| licence of the base | {known or 'not told by its folder: ask whoever made it'} |",
        "",
        "Held-out questions were never trained on; a reward is 1 for a right answer, which a rule decides.",
    ]
    return "\n".join([*front, *lines]) + "\n"


def licence_of(model: str) -> str | None:
    """What the base model's own card says, where it is a folder here."""
    shipped = {"tiny": TINY_LICENCE, "smollm2": SMOLLM2_LICENCE}
    if model in shipped:
        return shipped[model]
    try:
        text = (Path(model).expanduser() / "README.md").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    front = _FRONT.match(text)
    found = _LICENCE.search(front[1]) if front else None
    return found[1] if found else None


def _swarm(config: NodeConfig, state: NodeState) -> str:
    if not state.taken:
        return "none: it learned alone"
    givers = sorted(state.taken.items(), key=lambda pair: -pair[1])
    shown = ", ".join(
        f"{plain(name_of(Author(author)), 40)} {count}" for author, count in givers[:GIVERS_SHOWN]
    )
    return f"{plain(config.swarm.name, 64)}; groups taken from {len(givers)} others: {shown}"


def _reward(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.3f}"
