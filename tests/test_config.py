"""The one schema: three ways to write it, and one clear line for whatever cannot be meant."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from waggledance.config import NodeConfig, check_config, keys, read_config, write_config
from waggledance.errors import MissingError, UsageError

KEYS = {key.dotted: key for key in keys()}


def config_from(text: str, folder: Path) -> NodeConfig:
    path = folder / "node.toml"
    path.write_text(text, encoding="utf-8")
    return read_config(path)


def refusal(text: str, folder: Path) -> str:
    with pytest.raises(UsageError) as refused:
        config_from(text, folder)
    return str(refused.value)


def limits(schema: type[msgspec.Struct] = NodeConfig, above: str = "") -> dict[str, dict[str, float]]:
    """Each number's limits, as the schema states them."""
    found: dict[str, dict[str, float]] = {}
    for name, hint in get_type_hints(schema, include_extras=True).items():
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            found |= limits(hint, f"{above}{name}.")
            continue
        kind, *metas = get_args(hint)
        if kind in (int, float):
            stated = {side: getattr(meta, side) for meta in metas for side in ("ge", "gt", "le", "lt")}
            for meta in metas:
                for side in stated:
                    value = getattr(meta, side)
                    stated[side] = value if value is not None else stated[side]
            found[above + name] = {side: value for side, value in stated.items() if value is not None}
    return found


LIMITS = limits()
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)
ANY_TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True)


def values(dotted: str) -> st.SearchStrategy[Any]:
    key = KEYS[dotted]
    if dotted in LIMITS:
        stated = LIMITS[dotted]
        low, high = stated.get("ge", stated.get("gt")), stated.get("le", stated.get("lt"))
        if key.kind is int:
            return st.integers(int(low or 0), int(high or 0))
        return st.floats(low, high, exclude_min="gt" in stated, exclude_max="lt" in stated)
    if get_args(key.kind) and isinstance(get_args(key.kind)[0], str):
        return st.sampled_from(get_args(key.kind))
    if key.kind is bool:
        return st.booleans()
    if key.is_list and get_origin(get_args(key.kind)[0]) is Literal:
        return st.lists(st.sampled_from(get_args(get_args(key.kind)[0])))
    if key.is_list:
        return st.lists(TEXTS, min_size=1 if dotted == "tasks" else 0)
    if dotted == "policy.system_prompt":
        return st.none() | ANY_TEXTS
    return NAMES if key.path[-1] == "name" else TEXTS


def planted(flat: dict[str, Any]) -> dict[str, Any]:
    """Dotted keys as tables in tables."""
    tree: dict[str, Any] = {}
    for dotted, value in flat.items():
        *tables, name = dotted.split(".")
        table = tree
        for part in tables:
            table = table.setdefault(part, {})
        table[name] = value
    return tree


CONFIGS = st.fixed_dictionaries({dotted: values(dotted) for dotted in KEYS}).map(planted).map(check_config)


@settings(suppress_health_check=[HealthCheck.too_slow])  # every setting there is
@given(config=CONFIGS)
def test_what_is_written_reads_back_the_same(
    config: NodeConfig, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp()
    assert config_from(write_config(config), folder) == config


def test_the_defaults_read_back_the_same_and_are_within_their_own_limits(tmp_path: Path) -> None:
    assert config_from(write_config(NodeConfig()), tmp_path) == NodeConfig() == read_config()
    assert check_config(msgspec.to_builtins(NodeConfig())) == NodeConfig()


def test_every_key_has_a_description_a_variable_of_its_own_and_finite_limits() -> None:
    assert all(key.description for key in keys())
    variables = [key.variable for key in keys()]
    assert len(set(variables)) == len(variables) == len(KEYS)
    assert all(re.fullmatch(r"WAGGLE_[A-Z_]+", variable) for variable in variables)
    for dotted, stated in LIMITS.items():
        bounds = {side[0] for side in stated}
        assert bounds == {"g", "l"}, f"{dotted} has no limit on one side"
        assert all(math.isfinite(limit) for limit in stated.values())


def test_environment_goes_before_toml_and_flags_before_both(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text("seed = 1\nrounds = 1\nname = 'toml'\n[policy]\nsuccess = 0.25\n")
    variables = {
        "WAGGLE_ROUNDS": "2",
        "WAGGLE_NAME": "variable",
        "WAGGLE_POLICY_KIND": "scripted",
        "HOME": "/",
    }
    config = read_config(path, variables, {"name": "flag", "policy.max_tokens": "7"})
    assert (config.seed, config.rounds, config.name) == (1, 2, "flag")
    assert (config.policy.success, config.policy.kind, config.policy.max_tokens) == (0.25, "scripted", 7)
    assert config.policy.completions == NodeConfig().policy.completions


def test_lists_are_arrays_in_toml_and_separated_by_commas_elsewhere(tmp_path: Path) -> None:
    assert config_from('tasks = ["easy:gcd", "jsonl:a,b"]', tmp_path).tasks == ("easy:gcd", "jsonl:a,b")
    assert read_config(flags={"tasks": "easy:gcd, arithmetic,"}).tasks == ("easy:gcd", "arithmetic")
    variables = {"WAGGLE_SWARM_CONNECT": "tcp/192.0.2.1:7447,tcp/192.0.2.2:7447", "WAGGLE_SWARM_LISTEN": ""}
    swarm = read_config(environment=variables).swarm
    assert swarm.connect == ("tcp/192.0.2.1:7447", "tcp/192.0.2.2:7447")
    assert swarm.listen == ()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("rouns = 3", "unknown key rouns; did you mean rounds?"),
        ("[policy]\ntemprature = 1", "unknown key policy.temprature; did you mean policy.temperature?"),
        ("[polcy]\nkind = 'hf'", "unknown key polcy; did you mean policy.kind?"),
        ("[policy.nucleus]\np = 1", "unknown key policy.nucleus"),
        ("'policy.kind' = 'hf'", "unknown key 'policy.kind'; did you mean policy.kind?"),
        ("policy.'' = 1", "unknown key policy.''"),
        ('"two\\nlines" = 1', "unknown key 'two\\nlines'; known: "),
        ("mix = {own = 1, forein = 2}", "unknown key mix.forein; did you mean mix.foreign?"),
        ("policy = 1", "policy is a table; write [policy]"),
        ("policy = []", "policy is a table"),
        ("[[policy]]\nkind = 'hf'", "policy is a table"),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_known_one(text: str, named: str, tmp_path: Path) -> None:
    message = refusal(text, tmp_path)
    assert named in message
    assert "\n" not in message


def test_an_unknown_variable_is_named_with_the_nearest_known_one() -> None:
    with pytest.raises(UsageError, match=r"unknown WAGGLE_ROUND; did you mean WAGGLE_ROUNDS\?"):
        read_config(environment={"WAGGLE_ROUND": "3"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rounds = -1", "rounds = -1: expected int >= 0"),
        ("seed = 9223372036854775808", "seed = 9223372036854775808: expected int <= 9223372036854775807"),
        ("policy.temperature = 11", "policy.temperature = 11: expected float <= 10.0"),
        ("policy.temperature = nan", "policy.temperature = nan: expected float >= 0.0"),
        ("learner.kl_weight = inf", "learner.kl_weight = inf: expected float <= 1000.0"),
        ("learner.learning_rate = 0", "learner.learning_rate = 0: expected float > 0.0"),
        ("policy.completions = 65", "policy.completions = 65: expected int <= 64"),
        ("rounds = 1.5", "rounds = 1.5: expected int, got float"),
        ("rounds = inf", "rounds = inf: expected int, got float"),
        ("seed = true", "seed = True: expected int, got bool"),
        ("seed = 'x'", "seed = 'x': expected int, got str"),
        ("policy.kind = 'foo'", "policy.kind = 'foo': take hf or endpoint or scripted"),
        ("policy.kind = 1", "policy.kind = 1: take hf or endpoint or scripted"),
        ("policy.kind = {a = 1}", "policy.kind = {'a': 1}: take hf or endpoint or scripted"),
        ("name = 2020-01-01", "name = datetime.date(2020, 1, 1): expected str, got date"),
        ("name = '../up'", "name = '../up': expected letters, digits and ._- (64 at most)"),
        ("swarm.name = ''", "swarm.name = '': expected letters, digits and ._- (64 at most)"),
        ('name = "end\\n"', "name = 'end\\n': expected letters, digits and ._- (64 at most)"),
        ("tasks = 'easy'", "tasks = 'easy': expected array, got str"),
        ("tasks = []", "tasks = []: expected array of length >= 1"),
        ("tasks = [['easy']]", "tasks = [['easy']]: expected str, got array"),
        ("tasks = ['easy', 3]", "tasks = ['easy', 3]: expected str, got int"),
        ('tasks = ["a\\u0000b"]', "expected text that is not empty and has no NUL"),
        ("swarm.listen = ['']", "swarm.listen = ['']: expected text that is not empty"),
    ],
)
def test_a_wrong_value_is_named_with_its_key_and_limit(text: str, message: str, tmp_path: Path) -> None:
    assert message in refusal(text, tmp_path)


@pytest.mark.parametrize("dotted", LIMITS)
def test_the_limits_of_every_number_are_kept(dotted: str) -> None:
    for side, limit in LIMITS[dotted].items():
        outside = limit if side in ("gt", "lt") else limit + (-1 if side == "ge" else 1)
        if outside == limit + 1 and isinstance(limit, float):
            outside = math.nextafter(limit, math.inf)
        with pytest.raises(UsageError, match=rf"^{re.escape(dotted)} = "):
            check_config(planted({dotted: outside}))


@pytest.mark.parametrize("dotted", [dotted for dotted, key in KEYS.items() if get_origin(key.kind) is None])
def test_a_number_of_400_digits_is_refused_by_every_key(dotted: str, tmp_path: Path) -> None:
    message = refusal(f"{dotted} = 1{'0' * 400}", tmp_path)
    assert message.startswith(f"{dotted} = 1")
    assert len(message) < 200


@pytest.mark.parametrize(
    "text",
    [
        "seed = " + "9" * 5000,
        "seed = 0x" + "f" * 5000,
        "a = " + "[" * 5000 + "]" * 5000,
        "a = " + "{a=" * 5000 + "1" + "}" * 5000,
        "policy.kind" + ".a" * 3000 + " = 1",
        "name = '" + "x" * 100_000 + "'",
        "seed =",
        "seed = 1\nseed = 2",
        'x = "\\ud800"',
    ],
    ids=lambda text: text[:12],
)
def test_toml_without_end_or_sense_is_one_short_line(text: str, tmp_path: Path) -> None:
    message = refusal(text, tmp_path)
    assert "\n" not in message
    assert len(message) < 400


def taken_or_refused(dotted: str, read: Callable[[], NodeConfig]) -> None:
    try:
        write_config(read())
    except UsageError as error:
        line = str(error)
    else:
        return
    assert line.startswith(f"{dotted} = ")
    assert "\n" not in line


TOML_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.dates()
    | st.times()
    | st.datetimes()
    | ANY_TEXTS,
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(ANY_TEXTS, inside, max_size=3),
    max_leaves=5,
)


@given(dotted=st.sampled_from(sorted(KEYS)), value=TOML_VALUES)
def test_any_value_at_all_is_taken_or_refused_in_one_line(dotted: str, value: Any) -> None:
    taken_or_refused(dotted, lambda: check_config(planted({dotted: value})))


@given(dotted=st.sampled_from(sorted(KEYS)), text=st.text())
def test_any_flag_at_all_is_taken_or_refused_in_one_line(dotted: str, text: str) -> None:
    taken_or_refused(dotted, lambda: read_config(flags={dotted: text}))


def test_what_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_bytes(b"name = '\xff'")
    with pytest.raises(UsageError, match=r"node.toml is not TOML: .*utf-8"):
        read_config(path)
    with pytest.raises(UsageError, match=r"policy.model = .*: not UTF-8"):
        read_config(environment={"WAGGLE_POLICY_MODEL": "m\udcff"})


def test_a_file_that_cannot_be_read_is_missing(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match=r"^cannot read .*nowhere.toml: No such file or directory$"):
        read_config(tmp_path / "nowhere.toml")
    with pytest.raises(MissingError, match=r"^cannot read .*: Is a directory$"):
        read_config(tmp_path)
