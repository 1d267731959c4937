"""The fold: what each event changes, that nothing it may be told raises, that it stays small and quick."""

import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from view_run import entries, swarm_state, told
from waggledance.events import (
    Entry,
    Evaluated,
    Event,
    Failed,
    Finished,
    Generated,
    Learned,
    Met,
    Parted,
    Said,
    Sampled,
    Saved,
    Shared,
    Started,
    Used,
    Verified,
)
from waggledance.rollout import Author
from waggledance.view.curve import POINTS_LIMIT, Curve, cumulative, mean_over, smoothed
from waggledance.view.state import (
    OTHER_REASONS,
    QUOTES_LIMIT,
    REASONS_LIMIT,
    RECENT_ROUNDS,
    SAID_LIMIT,
    NodeState,
    SwarmState,
    fold,
    fold_all,
)
from waggledance.view.tally import cumulative as earned
from waggledance.view.tally import gain, heldout, own, progress, tally

N0, N1 = Author("n0"), Author("n1")
STARTED = Started("tiny", 10, ("easy",), "4/4", 3, 8, 1, "0")


def test_who_is_here_and_what_was_refused_of_whom_is_folded() -> None:
    ant = Met(Author("ant"), "tiny", 10, "0.1.0", {"easy:gcd": "0a1b"})
    node = node_after(
        (0, STARTED),
        (1, ant),
        (1, Met(Author("bee"), "smollm2", 100, "0.1.0", {})),
        (
            1,
            Sampled(4, 0, {}, 3, 2, {"digest": 1}, {"ant": {"digest": 1}}, heard=5, dropped=2, listening=0.5),
        ),
        (2, Parted(Author("bee"), "lost")),
        (2, Sampled(4, 0, {}, 3, 1, {"digest": 2}, {"ant": {"digest": 2}}, heard=7)),
    )
    assert [neighbour.met for neighbour in node.met.values()] == [ant]
    assert node.parted == {"lost": 1}
    assert (node.heard, node.dropped, node.listening) == (12, 2, 1.0)
    assert (node.refused, node.refused_of) == ({"digest": 3}, {"ant": {"digest": 3}})


def test_twins_are_paired_by_name_whatever_their_keys() -> None:
    silo = fold_all(SwarmState(), [told(N0, 1, Verified(0.1, 1, 0.1))])
    swarm = fold_all(SwarmState(), [told(Author("n0.abcdefgh234567ab"), 1, Verified(0.4, 1, 0.1))])
    more = gain(silo, swarm, own)
    assert more is not None
    assert more.mean == pytest.approx(0.3)


def learned(reward: float, tokens: int = 10) -> Learned:
    return Learned(reward, 8, tokens, 0.1, 0.2, 0.0, 0.0, 0.5)


def node_after(*events: tuple[int, Event]) -> NodeState:
    return fold_all(SwarmState(), (told(N0, round_, event) for round_, event in events)).nodes[N0]


def test_a_round_is_folded_into_one_node() -> None:
    node = node_after(
        (0, STARTED),
        (0, Evaluated(0.01, {}, 64, 1.0)),
        (1, Generated(4, 32, 500, 2.0)),
        (1, Verified(0.25, 2, 0.1)),
        (1, Said(N0, "easy", "2+2", "4", 1.0)),
        (1, Shared(4, 2600)),
        (1, Sampled(4, 4, {"n1": 3, "n2": 1}, 30, 2, {"stale": 2})),
        (1, learned(0.4, 700)),
    )
    assert node.rounds == 3
    assert node.round == 1
    assert node.phase == "generate"
    assert node.own.points == ((1, 0.25),)
    assert node.trained.points == ((1, 0.4),)
    assert node.heldout_start == 0.01
    assert (node.tokens_generated, node.tokens_trained) == (500, 700)
    assert (node.groups_shared, node.bytes_shared) == (4, 2600)
    assert node.taken == {"n1": 3, "n2": 1}
    assert (node.pool, node.peers, node.refused) == (30, 2, {"stale": 2})
    assert [quote.said.text for quote in node.rewarded] == ["4"]


def test_the_end_is_told_apart_from_a_failure_and_a_new_start_outlives_both() -> None:
    done = node_after((3, Saved("runs/n0")), (3, Finished("all rounds done")))
    assert (done.phase, done.ended, done.saved) == ("done", True, "runs/n0")
    failed = node_after((2, Failed("disk full", 7)))
    assert (failed.phase, failed.ended, failed.error) == ("failed", True, "disk full")
    again = node_after((2, Failed("disk full", 7)), (2, STARTED))
    assert not again.ended


def test_taken_counts_are_kept_for_ever_and_for_the_newest_rounds() -> None:
    node = node_after(
        *((r, Sampled(4, 4, {"n1": 1}, 0, 1, {"forged": 1})) for r in range(RECENT_ROUNDS + 15))
    )
    assert node.taken == {"n1": RECENT_ROUNDS + 15}
    assert node.taken_recently == {"n1": RECENT_ROUNDS}
    assert node.refused == {"forged": RECENT_ROUNDS + 15}


def test_quotes_are_bounded_and_only_rewarded_ones_count_as_rewarded() -> None:
    node = node_after(*((r, Said(N0, "easy", "q", str(r), float(r % 2))) for r in range(100)))
    assert [quote.said.text for quote in node.quotes] == [str(r) for r in range(100 - QUOTES_LIMIT, 100)]
    assert all(quote.said.reward for quote in node.rewarded)
    assert len(node.rewarded) == QUOTES_LIMIT


def test_what_others_said_is_kept_to_be_browsed_and_earns_this_node_nothing() -> None:
    swarm = fold_all(
        SwarmState(),
        (told(N0, r, Said(N1 if r % 2 else N0, "easy", "q", str(r), 1.0)) for r in range(2 * SAID_LIMIT)),
    )
    assert [saying.serial for saying in swarm.said] == list(range(SAID_LIMIT, 2 * SAID_LIMIT))
    assert {saying.teller for saying in swarm.said} == {N0}
    assert {quote.said.author for quote in swarm.nodes[N0].rewarded} == {N0}


def test_rewards_by_task_are_a_curve_each() -> None:
    node = node_after(
        (0, Evaluated(0.1, {"gcd": 0.1}, 64, 1.0)),
        (1, Verified(0.25, 1, 0.1, {"gcd": 0.5, "dice": 0.0})),
        (2, Verified(0.5, 1, 0.1, {"gcd": 0.5})),
        (2, Evaluated(0.4, {"gcd": 0.4}, 64, 1.0)),
    )
    assert node.own_by_source["gcd"].points == ((1, 0.5), (2, 0.5))
    assert node.own_by_source["dice"].points == ((1, 0.0),)
    assert node.heldout_by_source["gcd"].points == ((0, 0.1), (2, 0.4))


def test_refusals_are_counted_round_by_round_and_made_up_reasons_share_one_curve() -> None:
    node = node_after((1, Sampled(4, 0, {}, 0, 1, {"seal": 2})), (2, Sampled(4, 0, {}, 0, 1, {"forged": 1})))
    assert {reason: curve.points for reason, curve in node.refusals.items()} == {
        "seal": ((1, 2.0), (2, 0.0)),
        "forged": ((2, 1.0),),
    }
    flooded = node_after(*((r, Sampled(4, 0, {}, 0, 1, {f"version {r}": 1})) for r in range(200)))
    assert len(flooded.refusals) == len(flooded.refused) == REASONS_LIMIT + 1
    assert flooded.refused[OTHER_REASONS] == 200 - REASONS_LIMIT


def test_a_rounds_seconds_are_counted_from_lesson_to_lesson_and_a_clock_set_back_takes_none() -> None:
    times = [(10.0, STARTED), (12.5, learned(0.1)), (20.0, Evaluated(0.1, {}, 1, 1.0)), (23.0, learned(0.1))]
    node = fold_all(SwarmState(), (Entry(at, N0, r, event) for r, (at, event) in enumerate(times))).nodes[N0]
    assert [seconds for _, seconds in node.round_seconds.points] == [2.5, 3.0]
    back = fold(SwarmState({N0: node}), Entry(1.0, N0, 9, learned(0.1))).nodes[N0]
    assert back.round_seconds.newest == (9, 0.0)


def test_what_a_process_takes_is_its_newest_measurement() -> None:
    node = node_after((1, Used(100, 200, 1.0)), (2, Used(150, 200, 2.0)))
    assert (node.memory_bytes, node.peak_bytes, node.cpu_seconds) == (150, 200, 2.0)


def test_a_node_that_went_back_to_a_checkpoint_tells_its_rounds_once() -> None:
    rewards = [(1, 0.1), (2, 0.2), (3, 0.3), (2, 0.5)]
    node = node_after(*((round_, Verified(reward, 1, 0.1)) for round_, reward in rewards))
    assert node.own.points == ((1, 0.1), (2, 0.5))
    assert node.own.total == pytest.approx(0.6)


def test_folding_leaves_the_earlier_state_as_it_was() -> None:
    before = fold(SwarmState(), told(N0, 1, Verified(0.5, 1, 0.1)))
    after = fold(before, told(N0, 2, Verified(0.7, 1, 0.1)))
    assert before.nodes[N0].own.points == ((1, 0.5),)
    assert after.nodes[N0].own.points == ((1, 0.5), (2, 0.7))


def test_nodes_are_in_the_order_a_person_counts() -> None:
    swarm = fold_all(SwarmState(), (told(Author(name), 0, STARTED) for name in ("n10", "n2", "n1")))
    assert [node.author for node in swarm.in_order] == ["n1", "n2", "n10"]


names = st.text(max_size=5)
counts = st.dictionaries(names, st.integers(0, 9), max_size=3)
rewards = st.floats(0, 1)
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(
        Started, names, st.integers(0), st.just(()), names, st.integers(0, 9), *[st.integers(0)] * 2, names
    ),
    st.builds(Evaluated, rewards, st.just({}), st.integers(0), rewards),
    st.builds(Generated, *[st.integers(0, 99)] * 3, rewards),
    st.builds(Verified, rewards, st.integers(0), rewards, st.dictionaries(names, rewards, max_size=3)),
    st.builds(Used, st.integers(0), st.integers(0), rewards),
    st.builds(Said, names.map(Author), names, names, names, rewards),
    st.builds(Shared, st.integers(0), st.integers(0)),
    st.builds(Sampled, st.integers(0), st.integers(0), counts, st.integers(0), st.integers(0), counts),
    st.builds(Met, names.map(Author), names, st.integers(0), names, st.just({})),
    st.builds(Parted, names.map(Author), names),
    st.builds(learned, rewards),
    st.builds(Saved, names),
    st.builds(Finished, names),
    st.builds(Failed, names, st.integers(0)),
)
known_entries = st.lists(
    st.builds(Entry, st.floats(0, 1e9), st.sampled_from([N0, N1]), st.integers(0, 12), events), max_size=40
)


@given(known_entries)
def test_known_events_in_any_order_never_raise(told_entries: list[Entry]) -> None:
    swarm = fold_all(SwarmState(), told_entries)
    counted = tally(swarm)
    assert counted.nodes == len({entry.node for entry in told_entries})
    assert 0.0 <= progress([swarm]).fraction <= 1.0
    for node in swarm.nodes.values():
        rounds = [round_ for round_, _ in node.own.points]
        assert rounds == sorted(set(rounds))


@given(st.lists(rewards, min_size=1, max_size=300))
def test_a_curve_keeps_its_total_however_it_is_merged(values: list[float]) -> None:
    curve = Curve()
    for round_, value in enumerate(values):
        curve = curve.with_point(round_, value)
    assert curve.rounds == len(values)
    assert curve.total == pytest.approx(sum(values))
    assert curve.mean == pytest.approx(sum(values) / len(values))
    assert curve.newest == (len(values) - 1, values[-1])


def test_a_full_curve_merges_its_neighbours_and_forgets_no_reward() -> None:
    curve = Curve()
    for round_ in range(5 * POINTS_LIMIT):
        curve = curve.with_point(round_, float(round_ % 2))
    assert len(curve.points) < POINTS_LIMIT
    assert curve.stride == 8
    assert curve.rounds == 5 * POINTS_LIMIT
    assert curve.total == pytest.approx(5 * POINTS_LIMIT / 2)
    assert curve.recent(100) == pytest.approx(0.5)
    assert cumulative(curve)[-1][1] == pytest.approx(5 * POINTS_LIMIT / 2, rel=0.01)


def test_a_moving_average_starts_when_half_of_it_is_there() -> None:
    points = [(1, 4.0), (2, 0.0), (3, 2.0), (4, 6.0), (5, 8.0)]
    assert smoothed(points, 1) == points
    assert smoothed(points, 4) == [(2, 2.0), (3, 2.0), (4, 3.0), (5, 4.0)]


def test_the_mean_over_nodes_waits_for_half_of_them() -> None:
    assert mean_over([[(1, 1.0), (2, 1.0)], [(1, 3.0)], [(1, 2.0)]]) == [(1, 2.0)]


def test_100_000_entries_are_folded_in_seconds() -> None:
    many = list(entries(2200, 2200, 8, together=True))
    assert len(many) > 100_000
    start = time.perf_counter()
    fold_all(SwarmState(), many)
    assert time.perf_counter() - start < 5.0


def test_the_tally_keeps_own_trained_and_heldout_apart() -> None:
    counted = tally(swarm_state(120))
    assert counted.nodes == 8
    assert counted.rounds == 120
    assert counted.own is not None
    assert counted.trained is not None
    assert counted.heldout_start is not None
    assert counted.heldout is not None
    assert counted.cumulative is not None
    assert counted.heldout_start.mean < counted.heldout.mean
    assert counted.own.mean * 120 == pytest.approx(counted.cumulative.mean)
    assert counted.own.low <= counted.own.mean <= counted.own.high
    assert counted.tokens_generated == 8 * 120 * 32 * 20
    assert msgspec.json.decode(msgspec.json.encode(counted))["nodes"] == 8


def test_the_gain_pairs_each_node_with_its_twin() -> None:
    silo, swarm = swarm_state(120, together=False), swarm_state(120)
    for measure in (own, heldout, earned):
        gained = gain(silo, swarm, measure)
        assert gained is not None
        assert gained.nodes == 8
        assert gained.mean > 0
    assert gain(SwarmState(), swarm, own) is None


def test_a_node_measured_once_has_a_start_and_no_gain_even_where_both_are_told_in_one_round() -> None:
    once = node_after((0, Evaluated(0.01, {}, 64, 1.0)))
    assert (once.heldout_start, heldout(once)) == (0.01, None)
    twice = node_after((0, Evaluated(0.01, {}, 64, 1.0)), (0, Evaluated(0.05, {}, 64, 1.0)))
    assert (twice.heldout_start, heldout(twice)) == (0.01, 0.05)


def test_progress_counts_a_swarm_that_has_not_started() -> None:
    half = swarm_state(60)
    assert progress([half]).fraction == pytest.approx(0.5)
    assert progress([SwarmState(), half]).fraction == pytest.approx(0.25)
    assert progress([SwarmState(), half]).round == 30
    assert progress([]).fraction == 0.0
    assert progress([swarm_state(120)]).ended
    assert not progress([swarm_state(120), SwarmState()]).ended


def test_a_state_can_be_sent_to_a_page() -> None:
    swarm = swarm_state(40)
    again = msgspec.json.decode(msgspec.json.encode(swarm), type=SwarmState)
    assert again == swarm
