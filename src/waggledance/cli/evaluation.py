"""`waggle eval`: how often models are right on tasks that nobody trains on, one beside the other."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from waggledance.cli.assemble import thinking
from waggledance.cli.audit import open_verifier
from waggledance.cli.newest import is_run, newest_model, settings_of
from waggledance.cli.verb import add_verb
from waggledance.config import NodeConfig, check_config
from waggledance.errors import UsageError
from waggledance.estimate import Estimate, changed, estimated, pass_at
from waggledance.evaluate import rewards_of
from waggledance.seams import Policy
from waggledance.tasks import open_sources
from waggledance.view.text import plain

COUNT, COMPLETIONS, MAX_TOKENS, SEED = 64, 8, 256, 0
LIMIT = 100_000
ENDPOINTS = ("http://", "https://")

DESCRIPTION = """How often models are right on held-out tasks: pass@1, and pass@k with several answers a task,
each with a 95 % interval; from the second model on also how much it differs from the first, task by task.
A model is tiny, smollm2, a folder, a name on the hub, or an endpoint's address; a run's folder stands for
two: the model it began with, and the one its newest round left."""
EXAMPLE = """example:
  waggle eval runs/alice                                  # before and after, on the run's own tasks
  waggle eval tiny ./my-model --tasks paper --count 200 --json
  waggle eval http://localhost:8080/v1 --tasks easy --k 1,8"""


class Side(msgspec.Struct, frozen=True):
    model: str
    passed: dict[str, Estimate]
    """By `pass@k`."""
    by_source: dict[str, Estimate]
    """pass@1."""
    tokens: int
    change: Estimate | None = None
    """Of pass@1, against the first model."""


class Evaluation(msgspec.Struct, frozen=True):
    tasks: int
    completions: int
    seed: int
    sources: tuple[str, ...]
    models: tuple[Side, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """One model's answers to the whole set."""

    name: str
    rewards: tuple[tuple[str, tuple[float, ...]], ...]
    """By task: its source, and a reward for each completion."""
    tokens: int


def add_parser(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "eval",
        "how often models are right, before and after",
        description=DESCRIPTION,
        example=EXAMPLE,
        run=run,
    )
    parser.add_argument("models", nargs="+", metavar="MODEL", help="a model, an endpoint or a run's folder")
    parser.add_argument("--tasks", help="task sources, with commas between (the first run's, or easy)")
    parser.add_argument("--count", type=int, default=COUNT, help=f"held-out tasks ({COUNT})")
    parser.add_argument(
        "--completions", type=int, default=COMPLETIONS, help=f"answers a task ({COMPLETIONS})"
    )
    parser.add_argument("--k", default="", metavar="K,…", help="which pass@k (1 and the completions)")
    parser.add_argument("--max-tokens", type=int, help=f"a completion (the run's, or {MAX_TOKENS})")
    parser.add_argument("--temperature", type=float, help="0 is greedy (the run's, or 1)")
    parser.add_argument("--device", help="cpu, cuda or mps (the run's, or cpu)")
    parser.add_argument("--seed", type=int, default=SEED, help=f"of sampling ({SEED})")


def run(options: argparse.Namespace) -> int:
    ks = _checked_ks(options)
    config = _config(options)
    sources = open_sources(config.tasks)
    verifier = open_verifier(sources, config.verify)
    asked: list[Asked] = []
    try:
        for name, policy in _policies(options.models, config):
            print(f"{name}: {options.count} tasks × {options.completions}", file=sys.stderr)
            rewards, tokens = rewards_of(
                policy,
                sources,
                verifier,
                tasks=options.count,
                completions=options.completions,
                seed=options.seed,
            )
            asked.append(Asked(name, rewards, tokens))
    finally:
        verifier.close()
    result = Evaluation(
        tasks=options.count,
        completions=options.completions,
        seed=options.seed,
        sources=tuple(source.name for source in sources),
        models=tuple(_side(each, asked[0], ks) for each in asked),
    )
    if options.json:
        print(msgspec.json.encode(result).decode())
    else:
        Console(file=sys.stdout, highlight=False).print(_table(result))
    return 0


def _checked_ks(options: argparse.Namespace) -> list[int]:
    for name, most in (("count", LIMIT), ("completions", 64)):
        if not 1 <= getattr(options, name) <= most:
            raise UsageError(f"--{name} {getattr(options, name)}: take 1 to {most}")
    words = [word for word in options.k.split(",") if word] or ["1", str(options.completions)]
    wrong = [word for word in words if not (word.isdecimal() and 1 <= int(word) <= options.completions)]
    if wrong:
        raise UsageError(
            f"--k {options.k}: {wrong[0]} is not 1 to {options.completions}, the completions a task"
        )
    return sorted({int(word) for word in words})


def _config(options: argparse.Namespace) -> NodeConfig:
    """The first run's settings, where one is named, and the flags on top."""
    runs = [Path(name) for name in options.models if is_run(Path(name))]
    config = settings_of(runs[0]) if runs else check_config({"policy": {"max_tokens": MAX_TOKENS}})
    changes = {
        name: getattr(options, name)
        for name in ("max_tokens", "temperature", "device")
        if getattr(options, name) is not None
    }
    tree = msgspec.to_builtins(config)
    if options.tasks is not None:
        tree["tasks"] = [word.strip() for word in options.tasks.split(",") if word.strip()]
    learner = {"kind": "none"}  # greedy answers may be asked for, and nothing is learned here
    return check_config({**tree, "learner": learner, "policy": {**tree["policy"], "kind": "hf", **changes}})


def _policies(names: Sequence[str], config: NodeConfig) -> "Any":
    """One after the other, so that one model at a time is in memory."""
    for name in names:
        folder = Path(name)
        if is_run(folder):
            began = settings_of(folder).policy.model
            yield f"{name}: before ({began})", _policy(config, began)
            model, round_number = newest_model(folder)
            after = "newest" if round_number is None else f"round {round_number}"
            yield f"{name}: {after}", thinking(config, model)[1]
        else:
            yield name, _policy(config, name)


def _policy(config: NodeConfig, name: str) -> Policy:
    if name.startswith(ENDPOINTS):
        policy = msgspec.structs.replace(config.policy, kind="endpoint", endpoint=name)
    else:
        policy = msgspec.structs.replace(config.policy, model=name)
    return thinking(msgspec.structs.replace(config, policy=policy))[1]


def _side(asked: Asked, first: Asked, ks: Sequence[int]) -> Side:
    by_source: dict[str, list[float]] = {}
    for source, rewards in asked.rewards:
        by_source.setdefault(source, []).append(pass_at(1, rewards))
    return Side(
        model=asked.name,
        passed={f"pass@{k}": estimated([pass_at(k, rewards) for _, rewards in asked.rewards]) for k in ks},
        by_source={source: estimated(values) for source, values in by_source.items()},
        tokens=asked.tokens,
        change=None if asked is first else changed(_firsts(first), _firsts(asked)),
    )


def _firsts(asked: Asked) -> list[float]:
    return [pass_at(1, rewards) for _, rewards in asked.rewards]


def _table(result: Evaluation) -> Table:
    asked = f"{result.tasks} held-out tasks × {result.completions} answers, seed {result.seed}"
    rows = Table(title=f"{asked}; 95 % intervals", title_justify="left")
    rows.add_column("model")
    ks = list(result.models[0].passed)
    for name in (*ks, "change in pass@1"):
        rows.add_column(name, justify="right")
    for side in result.models:
        change = (
            f"{side.change.value:+.3f} ({side.change.low:+.3f} … {side.change.high:+.3f})"
            if side.change
            else ""
        )
        rows.add_row(plain(side.model, 60), *[_shown(side.passed[k]) for k in ks], change)
    rows.add_section()
    for source in result.models[0].by_source:
        for side in result.models:
            rows.add_row(f"  {source}: {plain(side.model, 40)}", _shown(side.by_source[source]))
    return rows


def _shown(estimate: Estimate) -> str:
    return f"{estimate.value:.3f} ({estimate.low:.3f} … {estimate.high:.3f})"
