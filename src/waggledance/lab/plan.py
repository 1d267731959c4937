"""The plan of an experiment: what a lab file says, as values.

A file names configurations, seeds and rounds; every node's settings are those of `waggle up`, laid over each
other: the file's, the configuration's, the member's. A trial is one configuration with one seed.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import Meta

from waggledance.config import NodeConfig, config_of
from waggledance.errors import MissingError, UsageError, nearest

Tree = dict[str, Any]
LABEL = r"^[A-Za-z0-9][A-Za-z0-9 ._/+%-]{0,39}\Z"
QUESTION = r"^[^\s\x00-\x1f\x7f][^\x00-\x1f\x7f]{0,69}\Z"
Hears = Literal["all", "ring", "small-world", "groups"]


class WarmUp(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Lessons that a node has had before its first round: right answers to read."""

    steps: Annotated[int, Meta(ge=1, le=100_000)]
    tasks: tuple[str, ...] = ()
    """Of these sources; none: of all its own."""
    tagged: Annotated[float, Meta(ge=0, le=1)] = 1.0
    """How many of the answers stand in answer tags."""
    learning_rate: Annotated[float, Meta(gt=0, le=1)] = 1e-3


class Member(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How some of the nodes differ. Node k is member k of the list, over and over."""

    node: Tree = {}
    warm_up: WarmUp | None = None
    every: Annotated[int, Meta(ge=1, le=1000)] = 1
    """It does every so manyth round only: a slow machine."""
    away: tuple[int, int] | None = None
    """It does nothing from the first of these rounds up to the second: a failure."""


class Configuration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(pattern=LABEL)]
    node: Tree = {}
    nodes: Annotated[int, Meta(ge=1, le=4096)] | None = None
    members: tuple[Member, ...] = ()
    hears: Hears | None = None
    delay_rounds: Annotated[int, Meta(ge=0, le=10_000)] | None = None
    lost: Annotated[float, Meta(ge=0, le=1)] | None = None
    warm_up: WarmUp | None = None
    silo: str | None = None
    """The configuration that this one is compared with; where none is named, itself if it is another's silo,
    else the plan's."""
    question: Annotated[str, Meta(pattern=QUESTION)] | None = None
    """What it helps to answer: the title of its panel in the figure. It changes no trial."""


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    configurations: Annotated[tuple[Configuration, ...], Meta(min_length=1, max_length=1000)]
    seeds: Annotated[tuple[Annotated[int, Meta(ge=0, le=2**31)], ...], Meta(min_length=1, max_length=1000)]
    rounds: Annotated[int, Meta(ge=1, le=1_000_000)]
    nodes: Annotated[int, Meta(ge=1, le=4096)] = 8
    silo: str = ""
    """The configuration that the others are compared with; the first, where none is named."""
    stacked: bool = True
    """Nodes of one shape advance together in batched calls."""
    tasks_per_source: Annotated[int, Meta(ge=1, le=1_000_000)] = 2048
    heldout_per_source: Annotated[int, Meta(ge=1, le=1_000_000)] = 64
    node: Tree = {}
    members: tuple[Member, ...] = ()
    hears: Hears = "all"
    delay_rounds: Annotated[int, Meta(ge=0, le=10_000)] = 0
    lost: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """The share of the groups that do not arrive."""
    warm_up: WarmUp | None = None

    @property
    def baseline(self) -> str:
        return self.silo or self.configurations[0].name

    @property
    def silos(self) -> dict[str, str]:
        """What every configuration is compared with; a silo, unless it says otherwise, with itself."""
        named = {one.silo for one in self.configurations if one.silo}
        return {
            one.name: one.silo or (one.name if one.name in named else self.baseline)
            for one in self.configurations
        }

    @property
    def questions(self) -> dict[str, str]:
        """The panel of everything that is compared with another."""
        silos = self.silos
        return {
            one.name: one.question or f"Better than {silos[one.name]}?"
            for one in self.configurations
            if silos[one.name] != one.name
        }


class Seat(msgspec.Struct, frozen=True):
    """One node of a trial."""

    config: NodeConfig
    said: Tree
    """The settings that the file names: defaults may change, and paths differ from machine to machine."""
    warm_up: WarmUp | None
    every: int
    away: tuple[int, int] | None

    def works(self, round_: int) -> bool:
        return round_ % self.every == 0 and not (self.away and self.away[0] <= round_ < self.away[1])


class TrialPlan(msgspec.Struct, frozen=True):
    configuration: str
    seed: int
    rounds: int
    seats: tuple[Seat, ...]
    hears: Hears
    delay_rounds: int
    lost: float

    @property
    def label(self) -> str:
        """A file's name."""
        return f"{_file_of(self.configuration)}-{self.seed}"


def _file_of(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", name)


def read_plan(path: Path) -> Plan:
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise MissingError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from error
    plan = _checked(tree, path)
    _check_names(plan, path)
    for trial in trials(plan):  # every node's settings are read before anything starts
        _check_stacked(plan, trial, path)
    return plan


def trials(plan: Plan) -> list[TrialPlan]:
    """All of them: for every seed all configurations."""
    return [_trial(plan, configuration, seed) for seed in plan.seeds for configuration in plan.configurations]


def _checked(tree: Tree, path: Path) -> Plan:
    try:
        return msgspec.convert(tree, Plan)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {_told(str(error))}") from error


def _told(message: str) -> str:
    unknown = re.search(r"unknown field `([^`]*)`(?: - at `\$\.?([^`]*)`)?", message)
    if unknown is None:
        return message.replace("`", "").replace("$.", "").replace("Expected", "expected")
    name, where = unknown[1], unknown[2] or ""
    schema = Configuration if where.startswith("configurations") else Plan
    schema = Member if "members" in where else WarmUp if "warm_up" in where else schema
    return f"unknown key {where}{'.' if where else ''}{name}; {nearest(name, schema.__struct_fields__)}"


def _check_names(plan: Plan, path: Path) -> None:
    names = [configuration.name for configuration in plan.configurations]
    files = [_file_of(name) for name in names]
    twice = next((name for name in names if files.count(_file_of(name)) > 1), None)
    if twice is not None:
        raise UsageError(f"{path}: two configurations are called {twice!r} or nearly so; rename one")
    for silo in (plan.baseline, *(one.silo for one in plan.configurations if one.silo)):
        if silo not in names:
            raise UsageError(f"{path}: silo = {silo!r} is no configuration; {nearest(silo, names)}")
    idle = next((one for one in plan.configurations if one.question and one.name not in plan.questions), None)
    if idle is not None:
        raise UsageError(
            f"{path}: question = {idle.question!r}: {idle.name} is a silo and compared with nothing; "
            "leave it out"
        )
    if len(set(plan.seeds)) < len(plan.seeds):
        raise UsageError(f"{path}: seeds holds one seed twice; name each once")


def _check_stacked(plan: Plan, trial: TrialPlan, path: Path) -> None:
    for seat in trial.seats:
        policy = seat.config.policy
        if plan.stacked and policy.kind == "hf" and policy.precision != "float32":
            raise UsageError(
                f"{path}: configuration {trial.configuration}: policy.precision = {policy.precision!r}: "
                "stacked nodes reckon in float32; leave it out or set stacked = false"
            )


def _trial(plan: Plan, configuration: Configuration, seed: int) -> TrialPlan:
    count = configuration.nodes or plan.nodes
    members: Sequence[Member] = configuration.members or plan.members or (Member(),)
    warm_up = configuration.warm_up or plan.warm_up
    return TrialPlan(
        configuration=configuration.name,
        seed=seed,
        rounds=plan.rounds,
        seats=tuple(
            _seat(plan, configuration, members[k % len(members)], warm_up, k, seed) for k in range(count)
        ),
        hears=configuration.hears or plan.hears,
        delay_rounds=plan.delay_rounds if configuration.delay_rounds is None else configuration.delay_rounds,
        lost=plan.lost if configuration.lost is None else configuration.lost,
    )


def _seat(
    plan: Plan, configuration: Configuration, member: Member, warm_up: WarmUp | None, place: int, seed: int
) -> Seat:
    tree: Tree = {}
    for layer in (plan.node, configuration.node, member.node):
        tree = _over(tree, layer)
    for name in ("name", "seed", "rounds"):
        if name in tree:
            raise UsageError(f"node.{name} is the lab's to set; leave it out")
    tree |= {"name": f"n{place}", "seed": seed, "rounds": plan.rounds}
    config = config_of(tree, f"configuration {configuration.name}")
    return Seat(config, tree, member.warm_up or warm_up, member.every, member.away)


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> Tree:
    laid = dict(below)
    for name, value in above.items():
        under = laid.get(name)
        both = isinstance(value, dict) and isinstance(under, dict)
        laid[name] = _over(cast("Tree", under), cast("Tree", value)) if both else value
    return laid
