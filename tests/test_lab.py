"""The lab's parts: plans, banks, who hears whom, records, intervals."""

import random
import struct
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarm_run import truth_of
from waggledance.errors import MissingError, TaskError, UsageError
from waggledance.events import Entry, Evaluated, Event, Generated, Learned, Verified
from waggledance.lab.bank import Bank, BankSource, Remembering, make_bank, names_of, read_bank, write_bank
from waggledance.lab.folder import Folder, digest_of, unfinished
from waggledance.lab.hub import GROUP_NODES, GROUP_ROUNDS, Hub
from waggledance.lab.interval import Difference, compare, in_words
from waggledance.lab.map import (
    COLUMN_IN,
    FOOT_IN,
    HEAD_IN,
    ROOM,
    bent,
    draw_map,
    panels_of,
    reach_of,
    side_by_side,
    ticks_of,
)
from waggledance.lab.plan import Hears, Plan, read_plan, trials
from waggledance.lab.record import NodeRecord, TrialResult, result_of
from waggledance.lab.results import results_of, write_table
from waggledance.rollout import Author, Group, Rollout
from waggledance.task import Digest, SourceName
from waggledance.tasks import SETS, Arithmetic, open_sources
from waggledance.verify import Uncaged

LEAST = """
rounds = 3
seeds = [1, 2]
[[configurations]]
name = "8/0"
node.mix = { own = 8, foreign = 0 }
[[configurations]]
name = "4/4"
"""


def plan_of(tmp_path: Path, text: str) -> Plan:
    path = tmp_path / "plan.toml"
    path.write_text(text)
    return read_plan(path)


# ── plans ─────────────────────────────────────────────────────────────────────────────────────────────


def test_settings_are_laid_over_each_other(tmp_path: Path) -> None:
    plan = plan_of(
        tmp_path,
        """
rounds = 3
seeds = [1, 2]
nodes = 3
hears = "ring"
node = { tasks = ["arithmetic"], mix = { own = 6, foreign = 2 }, policy.max_tokens = 9 }
[[configurations]]
name = "a"
[[configurations]]
name = "b"
node.mix.own = 1
delay_rounds = 4
hears = "all"
members = [{}, { node.policy.max_tokens = 7, every = 2 }]
""",
    )
    found = trials(plan)
    assert [(trial.configuration, trial.seed) for trial in found] == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]
    a, b = found[0], found[3]
    assert (a.hears, a.delay_rounds, b.hears, b.delay_rounds) == ("ring", 0, "all", 4)
    assert [seat.config.policy.max_tokens for seat in b.seats] == [9, 7, 9]
    assert [seat.every for seat in b.seats] == [1, 2, 1]
    assert {(seat.config.mix.own, seat.config.mix.foreign) for seat in b.seats} == {(1, 2)}
    assert [(seat.config.name, seat.config.seed, seat.config.rounds) for seat in b.seats] == [
        ("n0", 2, 3),
        ("n1", 2, 3),
        ("n2", 2, 3),
    ]
    assert plan.baseline == "a"
    assert b.label == "b-2"


def test_a_member_may_be_slow_or_away(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, LEAST + "members = [{ every = 2 }, { away = [2, 3] }]\n")
    slow, gone = trials(plan)[1].seats[:2]
    assert [slow.works(round_) for round_ in (1, 2, 3, 4)] == [False, True, False, True]
    assert [gone.works(round_) for round_ in (1, 2, 3)] == [True, False, True]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rouns = 3\n" + LEAST, "unknown key rouns; did you mean rounds?"),
        (LEAST + "mix = 3\n", "unknown key configurations[1].mix; "),
        (LEAST + "node.mix.onw = 3\n", "configuration 4/4: unknown key mix.onw; did you mean mix.own?"),
        (LEAST + "node.mix.own = -1\n", "mix.own = -1: expected int >= 0"),
        (LEAST + 'node.name = "x"\n', "node.name is the lab's to set; leave it out"),
        (LEAST + 'silo = "9/0"\n', "silo = '9/0' is no configuration; did you mean 8/0?"),
        (LEAST + '[[configurations]]\nname = "4/4"\n', "two configurations are called '4/4'"),
        (LEAST.replace("[1, 2]", "[1, 1]"), "seeds holds one seed twice"),
        (LEAST.replace("[1, 2]", "[]"), "expected array of length >= 1 - at seeds"),
        (LEAST + 'question = ""\n', "expected str matching regex"),
        (
            LEAST.replace('[[configurations]]\nname = "4/4"', 'question = "Why?"'),
            "8/0 is a silo and compared",
        ),
        (LEAST + 'node.policy.precision = "bfloat16"\n', "stacked nodes reckon in float32; leave it out"),
        (LEAST + "lost = 2.0\n", "expected float <= 1.0 - at configurations[1].lost"),
        ("seeds = [", "is not TOML"),
    ],
)
def test_a_wrong_plan_is_one_clear_line(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        plan_of(tmp_path, text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_nodes_apart_may_reckon_in_bfloat16(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "stacked = false\n" + LEAST + 'node.policy.precision = "bfloat16"\n')
    assert {seat.config.policy.precision for seat in trials(plan)[1].seats} == {"bfloat16"}


MAPPED = """
rounds = 3
seeds = [1, 2]
[[configurations]]
name = "few 8/0"
[[configurations]]
name = "few 4/4"
question = "How many nodes?"
[[configurations]]
name = "many 8/0"
[[configurations]]
name = "many 4/4"
silo = "many 8/0"
question = "How many nodes?"
[[configurations]]
name = "many late"
silo = "many 8/0"
question = "How late?"
[[configurations]]
name = "many 2/6"
silo = "many 8/0"
"""


def test_a_silo_is_compared_with_itself_and_the_others_answer_a_question(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, MAPPED)
    assert plan.silos == {
        "few 8/0": "few 8/0",
        "few 4/4": "few 8/0",
        "many 8/0": "many 8/0",
        "many 4/4": "many 8/0",
        "many late": "many 8/0",
        "many 2/6": "many 8/0",
    }
    assert plan.questions == {
        "few 4/4": "How many nodes?",
        "many 4/4": "How many nodes?",
        "many late": "How late?",
        "many 2/6": "Better than many 8/0?",
    }


def test_a_question_changes_no_trial(tmp_path: Path) -> None:
    asked, plain = (trials(plan_of(tmp_path, text)) for text in (MAPPED, MAPPED.replace("question", "#")))
    assert [digest_of(trial) for trial in asked] == [digest_of(trial) for trial in plain]


def test_a_plan_that_is_not_there_is_missing(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="No such file"):
        read_plan(tmp_path / "none.toml")


# ── banks ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_bank_gives_what_its_sources_give(tmp_path: Path) -> None:
    [source] = open_sources(["arithmetic"])
    bank = make_bank([source], 20, 5)
    path = tmp_path / "bank.json.gz"
    path.write_bytes(write_bank(bank))
    [kept] = read_bank(path).named([SourceName("arithmetic")])
    verifier = Remembering()
    assert (kept.name, kept.digest, kept.size) == (source.name, source.digest, 20)
    for index in range(20):
        assert kept.task(index) == source.task(index)
        texts = [f"<answer>{truth_of(kept.task(index))}</answer>", "<answer>no</answer>", ""]
        assert verifier.verify([(kept.task(index), texts)]) == [(1.0, 0.0, 0.0)]
        assert verifier.verify([(source.task(index), texts)]) == Uncaged().verify([(kept.task(index), texts)])
    assert [kept.task(20 + k).question for k in range(5)] == [
        source.task(source.size + k).question for k in range(5)
    ]
    assert kept.task(25 + 3).question == kept.task(20 + 3).question
    with pytest.raises(TaskError, match="has no task -1"):
        kept.task(-1)
    with pytest.raises(TaskError, match="no tasks of easy:gcd"):
        bank.named([SourceName("easy:gcd")])


@pytest.mark.parametrize("content", [b"", b"{}", write_bank(Bank(()))[:-6], b"\x1f\x8bxxxxxxxxxxxxxxxxxx"])
def test_a_file_that_is_no_bank_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bank.json.gz"
    path.write_bytes(content)
    with pytest.raises(MissingError, match="is no bank of tasks"):
        read_bank(path)


def test_words_name_the_sources_they_open(tmp_path: Path) -> None:
    lines = '{"question": "a?", "answer": "b"}\n{"question": "c?", "answer": "d"}\n'
    (tmp_path / "own.jsonl").write_text(lines)
    words = ["easy", f"jsonl:{tmp_path}/own.jsonl", "arithmetic", "easy:gcd"]
    names = names_of(words)
    assert names == [*SETS["easy"], "jsonl:own.jsonl", "arithmetic"]
    assert names_of(words[1:3]) == [source.name for source in open_sources(words[1:3])]


# ── who hears whom ────────────────────────────────────────────────────────────────────────────────────


def group_of(author: str, round_: int = 1) -> Group:
    rollouts = (Rollout("yes", finished=True, tokens=1, mean_logprob=-1.0, token_ids=(3, 1)),)
    return Group(Author(author), round_, SourceName("arithmetic"), Digest("0"), 0, rollouts)


def hub_of(
    count: int, hears: Hears = "all", delay_rounds: int = 0, lost: float = 0.0
) -> tuple[Hub, list[Author]]:
    authors = [Author(f"n{k}") for k in range(count)]
    return Hub(authors, hears, delay_rounds=delay_rounds, lost=lost, seed=1), authors


def heard(hub: Hub, authors: Sequence[Author], round_: int = 1) -> dict[Author, set[Author]]:
    hub.turn(round_)
    for author in authors:
        hub.line(author).publish(group_of(author))
    return {author: {group.author for group in hub.line(author).drain(8)} for author in authors}


def test_all_hear_all_and_a_ring_its_neighbours() -> None:
    hub, authors = hub_of(5)
    assert heard(hub, authors) == {author: set(authors) - {author} for author in authors}
    ring, _ = hub_of(5, "ring")
    told = heard(ring, authors)
    assert told[Author("n0")] == {"n1", "n4"}
    assert all(ring.line(author).peers().keys() == told[author] for author in authors)


def test_a_small_world_is_a_ring_with_links_across() -> None:
    hub, authors = hub_of(16, "small-world")
    told = heard(hub, authors)
    for one, two in pairwise([*authors, authors[0]]):
        assert two in told[one]
        assert one in told[two]
    assert 2 < fmean(map(len, told.values())) < 5
    assert told == heard(hub_of(16, "small-world")[0], authors)


def test_groups_change_with_time() -> None:
    hub, authors = hub_of(8, "groups")
    told = heard(hub, authors)
    assert all(len(others) == GROUP_NODES - 1 for others in told.values())
    assert all(told[two] | {two} == others | {one} for one, others in told.items() for two in others)
    assert told != heard(hub, authors, GROUP_ROUNDS)


def test_what_is_late_comes_rounds_later_and_what_is_lost_never() -> None:
    late, authors = hub_of(2, delay_rounds=2)
    assert heard(late, authors, 1)[authors[0]] == set()
    late.turn(2)
    assert late.line(authors[0]).drain(8) == []
    late.turn(3)
    [group] = late.line(authors[0]).drain(8)
    assert group.rollouts[0].token_ids == ()  # as over the wire: text, not tokens
    lossy, _ = hub_of(2, lost=0.5)
    arrived = sum(len(heard(lossy, authors)[authors[0]]) for _ in range(200))
    assert 70 < arrived < 130
    assert lossy.line(authors[0]).traffic().sent_groups == 200


# ── records ───────────────────────────────────────────────────────────────────────────────────────────


def measured(reward: float, **by_source: float) -> Evaluated:
    return Evaluated(reward, by_source, 4, 0.1)


def record_of(own: Sequence[float], *heldout: Evaluated) -> NodeRecord:
    record = NodeRecord()

    def tell(round_: int, *events: Event) -> None:
        record.fold(Entry(0.0, Author("n"), round_, event) for event in events)

    tell(0, heldout[0])
    for round_, reward in enumerate(own, 1):
        learned = Learned(2 * reward, 1, 30, 0.0, 0.0, 0.0, 0.0, 0.3)
        tell(round_, Generated(2, 16, 100, 0.2), Verified(reward, 1, 0.0), learned)
    tell(len(own), *heldout[1:])
    return record


def trial_of(
    configuration: str, seed: int, own: Sequence[float], heldout: Sequence[float] = (0.1, 0.3)
) -> TrialResult:
    record = record_of(own, *(measured(value, a=value) for value in heldout))
    return result_of(configuration, seed, len(own), [record])


def test_a_result_keeps_rewards_and_costs_apart() -> None:
    one = record_of([0.0, 0.5], measured(0.1, a=0.2, b=0.0), measured(0.3, a=0.1, b=0.5))
    two = record_of([0.5, 1.0], measured(0.3, a=0.4, b=0.2), measured(0.2, a=0.4, b=0.0))
    result = result_of("4/4", 7, 2, [one, two])
    assert (result.own.cumulative, result.own.mean, result.own.final) == (1.0, 0.5, 0.75)
    assert (result.trained.cumulative, result.trained.mean) == (2.0, 1.0)
    heldout = result.heldout
    assert heldout.curve == pytest.approx([0.2, 0.25])
    assert (heldout.start, heldout.final, heldout.best) == pytest.approx((0.2, 0.25, 0.25))
    assert heldout.by_source == pytest.approx({"a": 0.25, "b": 0.25})
    assert heldout.forgetting == pytest.approx((0.1 + 0.0 + 0.0 + 0.2) / 4)
    assert heldout.rounds == [0, 2]
    assert (result.cost.tokens_generated, result.cost.tokens_trained) == (400, 120)
    assert (result.generated_curve, result.trained_curve) == ([0, 400], [0, 120])
    assert (result.cost.seconds_generating, result.cost.seconds_learning) == pytest.approx((0.8, 1.2))
    assert result.informative == 0.5
    assert result.own_curves == [[0.0, 0.5], [0.5, 1.0]]


def test_oscillation_is_of_the_smoothed_curve_and_the_last_rounds() -> None:
    steady = trial_of("a", 1, [0.2] * 240)
    wild = trial_of("a", 1, [0.2 + 0.1 * (round_ // 60 % 2) for round_ in range(240)])
    early = trial_of("a", 1, [random.Random(1).random()] * 50 + [0.2] * 190)
    assert (steady.oscillation, early.oscillation) == pytest.approx((0, 0), abs=1e-9)
    assert wild.oscillation > 0.03


def test_long_curves_are_thinned() -> None:
    result = trial_of("a", 1, [float(round_) for round_ in range(2000)])
    assert result.stride == 10
    [curve] = result.own_curves
    assert len(curve) == 200
    assert curve[:2] == [4.5, 14.5]
    assert result.own.cumulative == sum(range(2000))


# ── intervals ─────────────────────────────────────────────────────────────────────────────────────────

rewards = st.lists(st.tuples(st.floats(0.01, 10), st.floats(0.01, 10)), min_size=2, max_size=8)


@settings(max_examples=20, deadline=None)
@given(rewards)
def test_an_interval_holds_the_gain_and_mirrors(pairs: list[tuple[float, float]]) -> None:
    before, after = [a for a, _ in pairs], [b for _, b in pairs]
    there, back = compare(before, after), compare(after, before)
    assert there.difference_low is not None
    assert there.difference_high is not None
    assert there.difference_low <= there.difference + 1e-9
    assert there.difference <= there.difference_high + 1e-9
    assert back.difference == pytest.approx(-there.difference)
    ties = sum(a == b for a, b in pairs)
    assert there.ahead + back.ahead == len(pairs) - ties


def test_an_interval_is_narrow_where_pairs_agree_and_wide_where_not() -> None:
    agree = compare([1.0, 2.0, 3.0, 4.0, 5.0], [2.0, 4.0, 6.0, 8.0, 10.0])
    assert (agree.gain, agree.low, agree.high) == pytest.approx((1.0, 1.0, 1.0))
    differ = compare([1.0, 1.0, 1.0, 1.0], [0.5, 1.5, 0.6, 1.4])
    assert differ.low is not None
    assert differ.high is not None
    assert differ.low < 0 < differ.high
    assert compare([0.0, 0.0], [1.0, 2.0]).gain is None
    assert compare([1.0], [2.0]).low is None


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ([1.0, 1.1, 0.9], [2.0, 2.2, 1.8], "better"),
        ([1.0, 1.1, 0.9], [0.5, 0.6, 0.4], "worse"),
        ([1.0, 1.0, 1.0], [0.5, 1.6, 1.0], "no clear difference"),
        ([1.0], [2.0], "one pair says nothing of chance"),
    ],
)
def test_a_difference_in_words(before: list[float], after: list[float], words: str) -> None:
    difference: Difference = compare(before, after)
    assert words in in_words(difference, "own reward")


# ── results ───────────────────────────────────────────────────────────────────────────────────────────


def test_configurations_are_held_against_their_silo_seed_by_seed() -> None:
    found = [
        trial_of("8/0", 1, [0.1] * 20, (0.0, 0.2, 0.4)),
        trial_of("8/0", 2, [0.2] * 20, (0.0, 0.2, 0.4)),
        trial_of("4/4", 1, [0.2] * 20, (0.0, 0.4, 0.5)),
        trial_of("4/4", 2, [0.4] * 20, (0.0, 0.4, 0.5)),
        trial_of("4/4", 3, [9.0] * 20, (0.0, 0.4, 0.5)),
    ]
    results = results_of("toy", "0", "here", {"8/0": "8/0", "4/4": "8/0"}, found)
    [comparison] = results.comparisons
    assert comparison.own.gain == pytest.approx(1.0)
    assert comparison.own.pairs == 2
    assert comparison.heldout.gain == pytest.approx(0.25)
    assert (comparison.reached_silo, comparison.cost_to_silo) == (2, pytest.approx(1.0))
    table = write_table(results)
    assert "| 4/4 | 8/0 | +100% (+100% … +100%) |" in table
    columns = [line.count("|") for line in table.splitlines() if line.startswith("|")]
    assert columns == [15, 15, 15, 15, 9, 9, 9]


def test_equal_cost_is_where_the_cheaper_one_ends() -> None:
    silo = msgspec.structs.replace(
        trial_of("8/0", 1, [0.1] * 4), generated_curve=[0, 50, 100], trained_curve=[0, 0, 0]
    )
    swarm = msgspec.structs.replace(silo, configuration="4/4", generated_curve=[0, 25, 50])
    silo = msgspec.structs.replace(
        silo, heldout=msgspec.structs.replace(silo.heldout, curve=[0.0, 0.2, 0.4], final=0.4)
    )
    swarm = msgspec.structs.replace(
        swarm, heldout=msgspec.structs.replace(swarm.heldout, curve=[0.0, 0.4, 0.6], final=0.6)
    )
    results = results_of("toy", "0", "here", {"8/0": "8/0", "4/4": "8/0"}, [silo, swarm])
    [comparison] = results.comparisons
    equal = comparison.heldout_equal_cost
    assert (equal.before, equal.after) == pytest.approx((0.2, 0.6))
    assert comparison.cost_to_silo == pytest.approx(0.25)


# ── the map ──────────────────────────────────────────────────────────────────────────────────────────────


def test_the_map_has_a_panel_a_question_and_a_row_a_configuration(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, MAPPED)
    levels = {"few 4/4": 0.2, "many 4/4": 0.3, "many late": 0.05}
    found = [
        trial_of(name, seed, [levels.get(name, 0.1) + seed / 100] * 20, (0.25, 0.3, 0.4))
        for name in plan.silos
        for seed in plan.seeds
    ]
    results = results_of("toy", "0", "here", plan.silos, found)
    panels = panels_of(results, plan.questions)
    assert [(panel.question, [row.label for row in panel.rows]) for panel in panels] == [
        (
            "How many nodes?",
            [
                "against few 8/0, at the start right on 25.0%",
                "few 4/4",
                "against many 8/0, at the start right on 25.0%",
                "many 4/4",
            ],
        ),
        ("How late?", ["against many 8/0, at the start right on 25.0%", "many late"]),
        ("Better than many 8/0?", ["against many 8/0, at the start right on 25.0%", "many 2/6"]),
    ]
    left, right = side_by_side(panels)
    assert [panel.question for panel in left + right] == [panel.question for panel in panels]
    assert len(left) == 1
    width, height = struct.unpack(">II", draw_map(results, plan.questions)[16:24])
    column = max(sum(panel.height_in for panel in column) for column in (left, right))
    assert width == 100 * 2 * COLUMN_IN
    assert height == pytest.approx(100 * (HEAD_IN + column + FOOT_IN), abs=1)


@given(st.lists(st.floats(-0.99, 200), min_size=3, max_size=12))
def test_every_gain_is_inside_the_map_and_ticks_do_not_touch(gains: list[float]) -> None:
    low, high = reach_of([compare([1.0], [1 + gain]) for gain in gains])
    assert all(low < bent(gain) < high for gain in gains)
    ticks = ticks_of((low, high))
    assert 0.0 in ticks
    assert len(ticks) > 1
    assert all(bent(b) - bent(a) >= ROOM * (high - low) for a, b in pairwise(ticks))


@given(st.floats(-1, 1000), st.floats(-1, 1000))
def test_the_bent_scale_keeps_order_and_mirrors(a: float, b: float) -> None:
    low, high = sorted((a, b))
    assert bent(low) <= bent(high)
    assert bent(-a) == -bent(a)


# ── folders ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_folder_keeps_trials_and_mixes_no_two_experiments(tmp_path: Path) -> None:
    plans = trials(plan_of(tmp_path, LEAST))
    folder = Folder(tmp_path / "run")
    assert unfinished(folder, plans) == plans
    result = trial_of("8/0", 1, [0.1])
    folder.keep_result(plans[0], result)
    assert folder.result(plans[0]) == result
    assert unfinished(folder, plans) == plans[1:]
    others = trials(plan_of(tmp_path, LEAST.replace("rounds = 3", "rounds = 4")))
    with pytest.raises(UsageError, match="holds trials of another plan"):
        unfinished(folder, others)
    (tmp_path / "run" / "trials" / "8-0-1.json").write_text("{")
    with pytest.raises(MissingError, match="remove it to run it again"):
        folder.result(plans[0])


def test_a_bank_source_is_a_source_like_the_one_it_was_made_of() -> None:
    bank = make_bank([Arithmetic(size=50, digits=2)], 1000, 3)
    assert [(len(shelf.trained), len(shelf.heldout)) for shelf in bank.shelves] == [(50, 3)]
    assert BankSource(bank.shelves[0]).size == 50
