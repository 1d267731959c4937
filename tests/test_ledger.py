"""The ledger: what authors gave, and how much each of them weighs for it."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from test_sharing import group, scored
from waggledance.rollout import Author
from waggledance.sharing.ledger import (
    CROWD_WEIGHT,
    HALF_LIFE_ROUNDS,
    HEAVIEST,
    LIGHTEST,
    LIMIT_AUTHORS,
    PRIOR_WEIGHT,
    PROVEN_GROUPS,
    Account,
    Ledger,
    credit_of,
    read_ledger,
)
from waggledance.sharing.pool import Pool

ANT, BEE, CICADA = Author("ant"), Author("bee"), Author("cicada")
NOBODY: dict[Author, str] = {}


def share_of(ledger: Ledger, some: list[Author], everybody: list[Author]) -> float:
    weights = ledger.weights(everybody, NOBODY)
    return sum(weights[author] for author in some) / sum(weights.values())


def gives(ledger: Ledger, author: Author, rounds: int, *rewards: float, first: int = 1) -> None:
    """A group a round, heard, verified and, where it teaches something, trained on."""
    for now in range(first, first + rounds):
        ledger.heard([author], now)
        ledger.looked(author, now)
        one = scored(*rewards, author=author)
        if one.informative:
            ledger.took(one, now)


def test_credit_is_how_much_a_group_has_to_teach() -> None:
    assert credit_of(scored(1, 1, 1, 1)) == 0
    assert credit_of(scored(1, 1, 0, 0)) == 0.5
    assert credit_of(scored(1, 0, 0, 0)) == 0.375


def test_an_account_counts_what_came_of_an_authors_groups() -> None:
    ledger = Ledger()
    gives(ledger, ANT, 2, 1, 0)
    gives(ledger, ANT, 1, 0, 0, first=3)
    ledger.refused(ANT, "strange", 2, 3)
    account = ledger[ANT]
    assert (account.given, account.looked, account.taken, account.useful) == (3, 3, 2, 1.0)
    assert account.refused == {"strange": 2}
    assert ledger[BEE] == Account()


def test_useful_givers_weigh_more_and_rubbish_sinks() -> None:
    ledger = Ledger()
    gives(ledger, ANT, 40, 1, 0)
    gives(ledger, BEE, 40, 0, 0)
    weights = ledger.weights([ANT, BEE, CICADA], NOBODY)
    assert weights[ANT] > weights[CICADA] > weights[BEE] >= LIGHTEST
    assert weights[CICADA] == PRIOR_WEIGHT, "of somebody unknown half is expected"


def test_a_freeloader_never_outweighs_a_giver() -> None:
    """It gives next to nothing, and nothing that teaches."""
    ledger = Ledger()
    for now in range(1, 60):
        gives(ledger, ANT, 1, 1, 0, first=now)
        gives(ledger, BEE, 1, 1, 0, 0, 0, first=now)
        if now % 10 == 0:
            gives(ledger, CICADA, 1, 0, 0, first=now)
        weights = ledger.weights([ANT, BEE, CICADA], NOBODY)
        assert weights[CICADA] <= min(weights[ANT], weights[BEE])


def test_what_was_refused_costs_more_than_what_taught_nothing() -> None:
    ledger = Ledger()
    gives(ledger, ANT, 30, 1, 0)
    gives(ledger, BEE, 10, 0, 0)
    gives(ledger, CICADA, 10, 0, 0)
    ledger.refused(CICADA, "habit", 20, 10)
    weights = ledger.weights([ANT, BEE, CICADA], NOBODY)
    assert weights[CICADA] < weights[BEE]


def test_nobody_is_lost_for_good() -> None:
    ledger = Ledger()
    gives(ledger, ANT, 200, 1, 0)
    gives(ledger, BEE, 200, 0, 0)
    sunk = ledger.weights([BEE], NOBODY)[BEE]
    gives(ledger, BEE, 2 * HALF_LIFE_ROUNDS, 1, 0, first=201)
    assert ledger.weights([BEE], NOBODY)[BEE] > 5 * sunk


def test_where_nobody_was_useful_yet_all_weigh_the_same() -> None:
    ledger = Ledger()
    gives(ledger, ANT, 9, 0, 0)
    assert ledger.weights([ANT, BEE], NOBODY) == {ANT: 1.0, BEE: 1.0}


def test_a_hundred_new_keys_weigh_at_most_as_two_nodes_in_an_open_swarm() -> None:
    """However useful they make themselves: four nodes are known, a hundred keys are one host's."""
    ledger = Ledger(is_open=True)
    known = [Author(f"known{k}") for k in range(4)]
    for author in known:
        gives(ledger, author, PROVEN_GROUPS, 1, 0)
    sybils = [Author(f"sybil{k}") for k in range(100)]
    draw = random.Random(1)
    before = share_of(ledger, sybils, [*known, *sybils])
    assert before <= CROWD_WEIGHT / (CROWD_WEIGHT + len(known)) + 1e-9
    # A hundred rounds of four draws by weight; each sybil's group teaches as much as a group can.
    for now in range(PROVEN_GROUPS + 1, PROVEN_GROUPS + 101):
        weights = ledger.weights([*known, *sybils], NOBODY)
        for author in draw.choices(list(weights), list(weights.values()), k=4):
            gives(ledger, author, 1, 1, 0, first=now)
    after = share_of(ledger, sybils, [*known, *sybils])
    print(f"\nsampled from 100 sybils beside 4 nodes: {before:.1%} at once, {after:.1%} after 100 rounds")  # noqa: T201
    assert after <= CROWD_WEIGHT / (CROWD_WEIGHT + len(known)) + 0.01


def test_authors_of_one_grant_weigh_at_most_as_two_nodes_in_a_private_swarm() -> None:
    ledger = Ledger()
    members = [Author(f"member{k}") for k in range(4)]
    sybils = [Author(f"sybil{k}") for k in range(100)]
    grants = dict.fromkeys(sybils, "one seat") | {author: author for author in members}
    weights = ledger.weights([*members, *sybils], grants)
    assert sum(weights[author] for author in sybils) <= CROWD_WEIGHT + 1e-9
    assert all(weights[author] == 1.0 for author in members)


def test_a_swarm_of_one_ticket_is_nobodys_crowd() -> None:
    grants = dict.fromkeys((ANT, BEE, CICADA), "one seat")
    assert Ledger().weights([ANT, BEE, CICADA], grants) == dict.fromkeys((ANT, BEE, CICADA), 1.0)


authors = st.sampled_from([Author(f"a{k}") for k in range(6)])
deeds = st.lists(
    st.tuples(authors, st.sampled_from(["heard", "looked", "took", "refused"]), st.integers(0, 30)),
    max_size=60,
)


def after(deeds: list[tuple[Author, str, int]], *, is_open: bool) -> Ledger:
    ledger, now = Ledger(is_open=is_open), 0
    for author, deed, pause in deeds:
        now += pause
        if deed == "heard":
            ledger.heard([author], now)
        elif deed == "looked":
            ledger.looked(author, now)
        elif deed == "took":
            ledger.took(scored(1, 0, author=author), now)
        else:
            ledger.refused(author, "long", 1, now)
    return ledger


@given(deeds, st.booleans())
def test_weights_keep_their_bounds_and_survive_a_restart(
    deeds: list[tuple[Author, str, int]], is_open: bool
) -> None:
    ledger = after(deeds, is_open=is_open)
    everybody = [Author(f"a{k}") for k in range(8)]
    weights = ledger.weights(everybody, NOBODY)
    assert all(0 < weight <= HEAVIEST for weight in weights.values())
    assert read_ledger(ledger.encoded(), is_open=is_open).weights(everybody, NOBODY) == weights


@settings(max_examples=200)
@given(st.binary(max_size=200) | st.just(b'{"a":{"given":-1}}') | st.just(b'{"a":{"lately_useful":1e400}}'))
def test_what_is_no_ledger_counts_as_an_empty_one(content: bytes) -> None:
    ledger = read_ledger(content)
    assert all(weight > 0 for weight in ledger.weights([ANT, *ledger.authors], NOBODY).values())


def test_accounts_are_bounded_and_who_was_heard_lately_is_kept() -> None:
    ledger = Ledger()
    for number in range(LIMIT_AUTHORS + 50):
        ledger.heard([Author(f"s{number}"), ANT], number)
    assert len(ledger) == LIMIT_AUTHORS
    assert ledger[ANT].given == LIMIT_AUTHORS + 50


def test_the_pool_draws_authors_by_their_weight() -> None:
    """4,000 seeded draws; nine standard deviations of room."""
    counts = {ANT: 0, BEE: 0}
    for seed in range(4000):
        pool = Pool(limit_groups=64, max_age_rounds=1)
        pool.add([group("ant", index=0), *(group("bee", index=k) for k in range(30))], now=1)
        first = pool.take(random.Random(seed), {ANT: 3.0, BEE: 1.0})
        assert first is not None
        counts[first.author] += 1
    assert abs(counts[ANT] - 3000) < 9 * (4000 * 0.75 * 0.25) ** 0.5


def test_who_fills_the_pool_pushes_out_himself() -> None:
    pool = Pool(limit_groups=10, max_age_rounds=9)
    pool.add([group("ant", index=k) for k in range(4)], now=1)
    pool.add([group("bee", index=k) for k in range(100)], now=2)
    draw = random.Random(0)
    kept = [pool.take(draw) for _ in range(len(pool))]
    assert sum(one is not None and one.author == "ant" for one in kept) == 4
    assert pool.dropped == 94
