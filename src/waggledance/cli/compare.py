"""`waggle compare BEFORE AFTER`: two runs, or two groups of runs, and how sure their difference is.

A group is a run's folder, a folder of such folders, or a configuration of a lab's results; runs are paired by
their names, trials by their seeds.
"""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from waggledance.cli.training import JOURNAL
from waggledance.cli.verb import add_verb
from waggledance.cli.watching import Watching
from waggledance.errors import MissingError, UsageError, nearest
from waggledance.lab.interval import Difference, compare, in_words
from waggledance.lab.record import TrialResult
from waggledance.lab.results import Results
from waggledance.view import tally
from waggledance.view.state import NodeState

DESCRIPTION = """Two runs, or two groups of runs: what the second earned more than the first, with a 95 %
bootstrap interval over the pairs, an effect size, and in words what may be said of it. A group is a run's
folder, a folder of runs (paired by their names), or FOLDER:CONFIGURATION of a lab (paired by their seeds)."""
EXAMPLE = """example:
  waggle compare runs/demo/silo runs/demo/swarm
  waggle compare runs/lab-paper:8/0 runs/lab-paper:4/4 --json"""
RESULTS = "results.json"

Rewards = Mapping[str, float | None]
"""Of one kind, by the run's name or the trial's seed."""


class Group(msgspec.Struct, frozen=True):
    own: Rewards
    """Mean over the rounds."""
    trained: Rewards
    heldout: Rewards
    """The last measurement."""


class Outcome(msgspec.Struct, frozen=True):
    before: str
    after: str
    own: Difference | None
    trained: Difference | None
    heldout: Difference | None


def add_parser(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "compare",
        "two runs or two groups of runs: the difference, and how sure it is",
        description=DESCRIPTION,
        example=EXAMPLE,
        run=run,
    )
    parser.add_argument("before", metavar="BEFORE", help="a run, a folder of runs, or FOLDER:CONFIGURATION")
    parser.add_argument("after", metavar="AFTER", help="what is held against it")


def run(options: argparse.Namespace) -> int:
    before, after = read_group(options.before), read_group(options.after)
    result = Outcome(
        before=options.before,
        after=options.after,
        own=_difference(before.own, after.own),
        trained=_difference(before.trained, after.trained),
        heldout=_difference(before.heldout, after.heldout),
    )
    if (result.own, result.trained, result.heldout) == (None, None, None):
        raise UsageError(
            f"{options.before} and {options.after} have no pair: "
            f"{', '.join(before.own) or 'nothing'} and {', '.join(after.own) or 'nothing'}; "
            "runs are paired by their folders' names, trials by their seeds"
        )
    if options.json:
        print(msgspec.json.encode(result).decode())
        return 0
    kinds = (
        ("own reward", result.own),
        ("trained reward", result.trained),
        ("held-out reward", result.heldout),
    )
    for what, difference in kinds:
        print(f"{what}: not measured in both" if difference is None else in_words(difference, what))
    return 0


def _difference(before: Rewards, after: Rewards) -> Difference | None:
    """Of two single runs, whatever they are called; else of those whose names both groups have."""
    known = [{k: v for k, v in rewards.items() if v is not None} for rewards in (before, after)]
    if len(before) == len(after) == 1:
        pairs = list(zip(known[0].values(), known[1].values(), strict=False))
    else:
        pairs = [(known[0][name], known[1][name]) for name in known[0] if name in known[1]]
    return compare([a for a, _ in pairs], [b for _, b in pairs]) if pairs else None


def read_group(word: str) -> Group:
    path = Path(word)
    if (path / JOURNAL).exists():
        return _runs({path.name: path / JOURNAL})
    below = {found.parent.name: found for found in sorted(path.glob(f"*/{JOURNAL}"))}
    if below:
        return _runs(below)
    folder, colon, configuration = word.rpartition(":")
    if colon and (Path(folder) / RESULTS).exists():
        return _trials(Path(folder) / RESULTS, configuration)
    raise MissingError(
        f"{word} is no run (it has no {JOURNAL}), no folder of runs and no FOLDER:CONFIGURATION of a lab; "
        "name one of these"
    )


def _runs(journals: Mapping[str, Path]) -> Group:
    def told(measure: Callable[[NodeState], float | None]) -> Rewards:
        return {name: _only(map(measure, state.in_order)) for name, state in watching.states.items()}

    watching = Watching({name: [path] for name, path in journals.items()})
    watching.read()
    watching.close()
    return Group(told(tally.own), told(tally.trained), told(tally.heldout))


def _only(values: "map[float | None]") -> float | None:
    """A journal is one node's; an empty one nobody's."""
    return next(values, None)


def _trials(path: Path, configuration: str) -> Group:
    try:
        results = msgspec.json.decode(path.read_bytes(), type=Results)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MissingError(f"{path} is no result of a lab: {error}") from error
    found: dict[str, TrialResult] = {
        str(trial.seed): trial for trial in results.trials if trial.configuration == configuration
    }
    if not found:
        names = {trial.configuration for trial in results.trials}
        raise UsageError(f"{path} has no configuration {configuration!r}; {nearest(configuration, names)}")
    return Group(
        own={seed: trial.own.mean for seed, trial in found.items()},
        trained={seed: trial.trained.mean for seed, trial in found.items()},
        heldout={seed: trial.heldout.final for seed, trial in found.items()},
    )
