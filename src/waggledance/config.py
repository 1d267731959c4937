"""The one schema of a node: TOML file, WAGGLE_… environment and flags are three ways to write it.

`read_config` takes them in that order, later ones win. An unknown key is an error that names the nearest
known one; a value out of its limits names the key, the value and the limit.
"""

import re
import reprlib
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from waggledance.errors import MissingError, UsageError, nearest

ENVIRONMENT_PREFIX = "WAGGLE_"

Count = Annotated[int, Meta(ge=0, le=10**9)]
Positive = Annotated[int, Meta(ge=1, le=10**9)]
NAME, TEXT = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z", r"^[^\x00]+\Z"
PATTERNS = {NAME: "letters, digits and ._- (64 at most)", TEXT: "text that is not empty and has no NUL"}
Name = Annotated[str, Meta(pattern=NAME)]
"""A folder, a chunk of a key on the wire, a word on screens: the same letters everywhere."""
Text = Annotated[str, Meta(pattern=TEXT)]
"""What becomes a path or an address."""


class PolicyConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: Annotated[Literal["hf", "endpoint", "scripted"], Meta(description="who answers")] = "hf"
    model: Annotated[Text, Meta(description="tiny, smollm2, a folder, or a name on the hub")] = "tiny"
    device: Annotated[Text, Meta(description="cpu, cuda or mps")] = "cpu"
    precision: Annotated[
        Literal["float32", "bfloat16"], Meta(description="of products; weights stay in float32")
    ] = "float32"
    system_prompt: Annotated[str | None, Meta(description="default: how to mark the answer")] = None
    temperature: Annotated[float, Meta(ge=0, le=10, description="0 is greedy")] = 1.0
    completions: Annotated[int, Meta(ge=1, le=64, description="rollouts a group")] = 8
    max_tokens: Annotated[int, Meta(ge=1, le=65536, description="most tokens a completion")] = 256
    endpoint: Annotated[
        Text | None, Meta(description="address of an OpenAI-compatible server, like http://localhost:8080/v1")
    ] = None
    at_once: Annotated[int, Meta(ge=1, le=1024, description="requests to an endpoint")] = 8
    timeout_s: Annotated[float, Meta(gt=0, le=86_400, description="for one answer of an endpoint")] = 120.0
    retries: Annotated[int, Meta(ge=0, le=16, description="where an endpoint fails for a moment")] = 3
    success: Annotated[float, Meta(ge=0, le=1, description="of a scripted policy")] = 0.1


class LearnerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: Annotated[
        Literal["grpo", "dr_grpo", "rloo", "gspo", "ppo", "none"],
        Meta(description="what learns; docs/learning.md says when to take which"),
    ] = "grpo"
    learning_rate: Annotated[float, Meta(gt=0, le=1, description="Adam's")] = 1e-5
    clip_low: Annotated[float, Meta(ge=0, lt=1, description="how far a ratio may fall below 1")] = 0.2
    clip_high: Annotated[float, Meta(ge=0, le=1000, description="how far a ratio may rise above 1")] = 0.28
    kl_weight: Annotated[float, Meta(ge=0, le=1000, description="pull towards the starting model")] = 0.0
    max_grad_norm: Annotated[float, Meta(gt=0, le=1e9, description="gradients are scaled down to it")] = 1.0
    epochs: Annotated[int, Meta(ge=1, le=64, description="steps on one batch")] = 1
    lora_rank: Annotated[
        int, Meta(ge=0, le=1024, description="learn an adapter of this rank; 0: all weights")
    ] = 0
    lora_scale: Annotated[float, Meta(gt=0, le=1000, description="what an adapter says, times this")] = 2.0
    memory_mb: Annotated[
        int, Meta(ge=1, le=10**7, description="for what a pass keeps; more tokens than fit go in parts")
    ] = 512
    recompute: Annotated[
        bool, Meta(description="keep layers' inputs alone and compute them twice: less memory, more time")
    ] = False
    max_skipped: Annotated[
        int, Meta(ge=0, le=10**6, description="steps in a row skipped for an infinite gradient; then it ends")
    ] = 5
    value_learning_rate: Annotated[
        float, Meta(gt=0, le=10, description="of ppo's value head: about what an expectation moves a step")
    ] = 0.1
    discount: Annotated[float, Meta(ge=0, le=1, description="ppo's γ: what a token later is worth")] = 1.0
    trace: Annotated[
        float, Meta(ge=0, le=1, description="ppo's λ: 1 waits for the reward, 0 trusts the next value")
    ] = 0.95


class MixConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: Annotated[Literal["fixed", "need", "rescue"], Meta(description="what to train on")] = "fixed"
    own: Annotated[int, Meta(ge=0, le=1024, description="own groups a round")] = 4
    foreign: Annotated[int, Meta(ge=0, le=1024, description="foreign groups a round; 0 is plain RL")] = 4
    corrected: Annotated[bool, Meta(description="foreign text counts by its likelihood here")] = False
    replay_rounds: Annotated[Count, Meta(description="what taught is trained on again so long; 0: never")] = 0


class PoolConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit_groups: Annotated[int, Meta(ge=1, le=1_000_000, description="most foreign groups kept")] = 512
    max_age_rounds: Annotated[Count, Meta(description="older ones are dropped")] = 4
    verify_limit_groups: Annotated[Positive, Meta(description="most groups verified in a round")] = 128
    prefer: Annotated[
        Literal["auto", "useful", "nobody"],
        Meta(description="useful: those whose groups taught most come first; auto: in open swarms"),
    ] = "auto"


class GateConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: Annotated[
        Literal["auto", "guarded", "open"],
        Meta(description="guarded: what others wrote is judged before it teaches; auto: in open swarms"),
    ] = "auto"
    foreign_share: Annotated[
        float, Meta(ge=0, le=0.99, description="the most of a batch that may be others', where guarded")
    ] = 0.75


class SwarmConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: Annotated[Literal["zenoh", "none"], Meta(description="none trains alone")] = "zenoh"
    ticket: Annotated[Text | None, Meta(description="whose swarm to join; none: this user's own")] = None
    name: Annotated[Name, Meta(description="of this user's own swarm, where there is no ticket")] = "home"
    interface: Annotated[
        Text | None,
        Meta(description="lo: this machine; auto: its LAN; eth0, 10.1.2.3; default: the ticket's"),
    ] = None
    connect: Annotated[tuple[Text, ...], Meta(description="endpoints to dial instead of the ticket's")] = ()
    listen: Annotated[tuple[Text, ...], Meta(description="endpoints to be found at")] = ()
    share: Annotated[
        Literal["everything", "informative", "nothing"], Meta(description="which own groups to give")
    ] = "everything"
    carry: Annotated[
        Literal["nothing", "files"],
        Meta(description="questions and truths that travel, in a private swarm: those of one's own files"),
    ] = "nothing"


class VerifyConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: Annotated[Literal["cage", "uncaged"], Meta(description="where answers are judged")] = "cage"
    limit_s: Annotated[float, Meta(gt=0, le=60, description="most seconds for one group's answers")] = 1.0
    memory_mb: Annotated[int, Meta(ge=16, le=65536, description="most memory that judging takes")] = 512


class EvaluateConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    every_rounds: Annotated[Count, Meta(description="0: at the start and the end only")] = 0
    tasks: Annotated[Count, Meta(description="held-out tasks; 0: none")] = 64
    completions: Annotated[int, Meta(ge=1, le=64, description="rollouts a held-out task")] = 1


class PageConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    port: Annotated[
        int,
        Meta(ge=-1, le=65535, description="serve a page about the run here; 0: a free port, -1: no page"),
    ] = -1
    host: Annotated[Text, Meta(description="where; beyond this machine a token is asked")] = "127.0.0.1"
    token: Annotated[Text | None, Meta(description="to ask for; none: drawn where one is needed")] = None


class CheckpointConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: Annotated[
        Literal["rounds", "none"],
        Meta(description="rounds: each outlives a kill; none: saved at the end"),
    ] = "rounds"
    every_s: Annotated[
        float,
        Meta(ge=0, le=86_400, description="least seconds between whole ones; rounds between are recorded"),
    ] = 60.0
    experience_mb: Annotated[
        int, Meta(ge=0, le=1_000_000, description="most MB of old rounds put by for `waggle export`; 0: none")
    ] = 500


class NodeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[Name, Meta(description="the node's name in the swarm")] = "node"
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1, description="same seed, same draws")] = 0
    rounds: Annotated[Count, Meta(description="how many to do")] = 100
    tasks: Annotated[tuple[Text, ...], Meta(min_length=1, description="task sources")] = ("easy",)
    threads: Annotated[int, Meta(ge=0, le=1024, description="of torch; 0: as many as it likes")] = 0
    home: Annotated[Text, Meta(description="folder of this user's swarms")] = "~/.local/share/waggledance"
    track: Annotated[
        tuple[Literal["tensorboard"], ...],
        Meta(description="where else its numbers go"),
    ] = ()
    policy: PolicyConfig = PolicyConfig()
    learner: LearnerConfig = LearnerConfig()
    mix: MixConfig = MixConfig()
    pool: PoolConfig = PoolConfig()
    gate: GateConfig = GateConfig()
    swarm: SwarmConfig = SwarmConfig()
    verify: VerifyConfig = VerifyConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    page: PageConfig = PageConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    stuck_after_s: Annotated[
        float, Meta(ge=0, le=86_400, description="a phase that lasts longer is named; 0: never")
    ] = 300.0


class Key(msgspec.Struct, frozen=True):
    """One setting of the schema."""

    path: tuple[str, ...]
    kind: Any
    default: Any
    description: str

    @property
    def dotted(self) -> str:
        return ".".join(self.path)

    @property
    def variable(self) -> str:
        return ENVIRONMENT_PREFIX + "_".join(self.path).upper()

    @property
    def is_list(self) -> bool:
        return get_origin(self.kind) is tuple


def keys(schema: type[msgspec.Struct] = NodeConfig, above: tuple[str, ...] = ()) -> Iterator[Key]:
    """Every setting, in the schema's order."""
    hints = get_type_hints(schema, include_extras=True)
    for field in msgspec.structs.fields(schema):
        hint, path = hints[field.name], (*above, field.name)
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            yield from keys(hint, path)
            continue
        kind, *metas = get_args(hint)
        description = next(meta.description for meta in metas if meta.description)
        if get_origin(kind) is Annotated:
            kind = get_args(kind)[0]
        yield Key(path, kind, field.default, description)


def read_config(
    path: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
) -> NodeConfig:
    tree: dict[str, Any] = _read_toml(path) if path else {}
    known = {key.dotted: key for key in keys()}
    _refuse_unknown(tree, known, str(path))
    variables = {key.variable: key for key in known.values()}
    for variable, text in sorted((environment or {}).items()):
        if variable.startswith(ENVIRONMENT_PREFIX):
            if variable not in variables:
                raise UsageError(f"environment: unknown {variable}; {nearest(variable, variables)}")
            _put(tree, variables[variable], text)
    for dotted, text in (flags or {}).items():
        _put(tree, known[dotted], text)
    return check_config(tree)


def config_of(tree: Mapping[str, Any], where: str) -> NodeConfig:
    """A node's settings out of a larger file; `where` says which part of it."""
    _refuse_unknown(tree, {key.dotted: key for key in keys()}, where)
    return check_config(tree)


def check_config(tree: Mapping[str, Any]) -> NodeConfig:
    try:
        return msgspec.convert(tree, NodeConfig, strict=False)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        dotted = where.rstrip("`").split("[")[0]
        raise UsageError(f"{dotted} = {_shown(_value_at(tree, dotted))}: {_plain(what, dotted)}") from error


def write_config(config: NodeConfig) -> str:
    """The settings as TOML that `read_config` reads back; unset ones are left out."""
    tables: dict[tuple[str, ...], list[str]] = {}
    for key in keys():
        value = _value_of(config, key)
        if value is not None:
            tables.setdefault(key.path[:-1], []).append(f"{key.path[-1]} = {_toml(value)}")
    blocks = [
        "\n".join([f"[{'.'.join(table)}]", *lines] if table else lines) for table, lines in tables.items()
    ]
    return "\n\n".join(blocks) + "\n"


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise MissingError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, a number or a nesting without end
        raise UsageError(f"{path} is not TOML: {error}") from error


def _refuse_unknown(tree: Mapping[str, Any], known: Mapping[str, Key], where: str, above: str = "") -> None:
    for name, value in tree.items():
        dotted = above + name
        inside = [key for key in known if key.startswith(dotted + ".")]
        if "." in name or not (inside or dotted in known):
            raise UsageError(f"{where}: unknown key {_bare(name, above)}; {nearest(dotted, known)}")
        if inside and isinstance(value, dict):
            _refuse_unknown(cast("dict[str, Any]", value), known, where, dotted + ".")
        elif inside:
            raise UsageError(f"{where}: {dotted} is a table; write [{dotted}] and its keys below it")


def _bare(name: str, above: str) -> str:
    """A key as TOML has it: in quotes where it is more than a word."""
    return above + (name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _shown(name))


def _put(tree: dict[str, Any], key: Key, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{key.dotted} = {_shown(text)}: not UTF-8") from error
    for name in key.path[:-1]:
        tree = tree.setdefault(name, {})
    tree[key.path[-1]] = [part.strip() for part in text.split(",") if part.strip()] if key.is_list else text


def _value_at(tree: Mapping[str, Any], dotted: str) -> Any:
    value: Any = tree
    for name in dotted.split("."):
        value = cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None
    return value


def _value_of(config: NodeConfig, key: Key) -> Any:
    value: Any = config
    for name in key.path:
        value = getattr(value, name)
    return value


def _shown(value: Any) -> str:
    """A value as it was given, shortened where it is long or deep."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = 80
    try:
        return short.repr(value)
    except ValueError:  # Python writes out no whole number of more than 4,300 digits
        return "a number of thousands of digits"


def _plain(what: str, dotted: str) -> str:
    kind = next((key.kind for key in keys() if key.dotted == dotted), None)
    if get_origin(kind) is tuple:
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        return f"take {' or '.join(get_args(kind))}"
    for pattern, words in PATTERNS.items():
        what = what.replace(f"`str` matching regex {pattern!r}", words)
    return what.replace("`", "").replace("Expected", "expected")


def _toml(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(_toml(item) for item in cast('tuple[Any, ...]', value))}]"
    # JSON's strings, numbers and booleans are TOML's, but for one character that TOML wants escaped.
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")
