"""Presence: who is here and who is not, whatever tokens, cards and clocks do."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waggledance.events import Met, Parted
from waggledance.rollout import Author
from waggledance.seams import Card
from waggledance.swarm import presence as presence_module
from waggledance.swarm.presence import GRACE_S, LIMIT_NEWS, LIMIT_SESSIONS, Presence, leaving
from waggledance.task import Digest, SourceName

ANT, BEE, CICADA = Author("ant"), Author("bee"), Author("cicada")
CARD = Card("tiny", 7, "0.1.0", {SourceName("arithmetic"): Digest("d1")})


class Watch:
    """A presence with its own clock and stopwatch, both turned by hand."""

    def __init__(self) -> None:
        self.clock_s, self.stopwatch_s = 1e9, 0.0
        self.presence = Presence(ANT, lambda: self.clock_s, lambda: self.stopwatch_s)

    def wait(self, seconds: float) -> None:
        self.clock_s += seconds
        self.stopwatch_s += seconds

    def here(self) -> set[Author]:
        return set(self.presence.peers())


@pytest.fixture
def watch() -> Watch:
    return Watch()


def met(author: Author) -> Met:
    return Met(author, "tiny", 7, "0.1.0", {"arithmetic": "d1"})


def test_a_token_is_somebody_a_card_says_what(watch: Watch) -> None:
    watch.presence.came(BEE, "s1")
    [peer] = watch.presence.peers().values()
    assert (peer.author, peer.since, peer.card) == (BEE, 1e9, None)
    assert watch.presence.news() == []
    watch.presence.told(BEE, CARD)
    assert watch.presence.peers()[BEE].card == CARD
    assert watch.presence.news() == [met(BEE)]
    watch.presence.told(BEE, replace(CARD, round=5))
    assert watch.presence.news() == [], "a card that comes again is no news"
    assert watch.presence.peers()[BEE] == peer.__class__(BEE, 1e9, replace(CARD, round=5))


def test_nobody_is_one_s_own_peer_nor_is_who_has_no_name(watch: Watch) -> None:
    for author in (ANT, Author(""), Author("*"), Author("a b"), Author("\x1b[2J"), Author("x" * 97)):
        watch.presence.came(author, "s1")
    assert not watch.here()
    assert watch.presence.newcomers == 0


def test_a_token_that_is_back_within_the_grace_was_never_gone(watch: Watch) -> None:
    watch.presence.came(BEE, "s1")
    watch.presence.told(BEE, CARD)
    watch.presence.news()
    watch.presence.went(BEE, "s1")
    watch.wait(GRACE_S)
    assert watch.here() == {BEE}
    watch.presence.came(BEE, "s1")
    watch.wait(10 * GRACE_S)
    assert watch.here() == {BEE}
    assert watch.presence.news() == []
    assert watch.presence.newcomers == 1


def test_a_token_that_stays_away_is_a_loss_told_once(watch: Watch) -> None:
    watch.presence.came(BEE, "s1")
    watch.presence.told(BEE, CARD)
    watch.presence.went(BEE, "s1")
    watch.wait(GRACE_S + 0.1)
    assert watch.here() == set()
    assert watch.presence.news() == [met(BEE), Parted(BEE, "lost")]
    assert watch.presence.news() == []


def test_the_grace_does_not_start_anew_when_a_token_is_told_gone_twice(watch: Watch) -> None:
    watch.presence.came(BEE, "s1")
    for _ in range(4):
        watch.presence.went(BEE, "s1")
        watch.wait(GRACE_S / 3)
    assert watch.here() == set()


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
def test_a_clock_that_jumps_neither_loses_nor_keeps_anyone(watch: Watch, jump_s: float) -> None:
    watch.presence.came(BEE, "s1")
    watch.presence.came(CICADA, "s1")
    watch.presence.went(BEE, "s1")
    watch.clock_s += jump_s
    assert watch.here() == {BEE, CICADA}
    watch.wait(GRACE_S + 0.1)
    assert watch.here() == {CICADA}


def test_who_says_that_it_leaves_has_left_with_its_token(watch: Watch) -> None:
    watch.presence.came(BEE, "s1")
    watch.presence.told(BEE, CARD)
    watch.presence.told(BEE, leaving(CARD))
    watch.presence.went(BEE, "s1")
    assert watch.here() == set()
    assert watch.presence.news() == [met(BEE), Parted(BEE, "left")]


def test_a_node_that_restarts_is_not_lost_with_its_old_session(watch: Watch) -> None:
    watch.presence.came(BEE, "s1")
    watch.presence.told(BEE, CARD)
    watch.presence.came(BEE, "s2")
    watch.presence.went(BEE, "s1")
    watch.wait(10 * GRACE_S)
    assert watch.here() == {BEE}
    assert watch.presence.news() == [met(BEE)]


def test_who_left_and_is_back_at_once_is_told_as_both(watch: Watch) -> None:
    watch.presence.came(BEE, "s1")
    watch.presence.told(BEE, CARD)
    watch.presence.told(BEE, leaving(CARD))
    watch.presence.went(BEE, "s1")
    watch.presence.came(BEE, "s2")
    assert watch.presence.peers()[BEE].card is None, "what it says now is still to come"
    watch.presence.told(BEE, CARD)
    assert watch.presence.news() == [met(BEE), Parted(BEE, "left"), met(BEE)]


def test_a_card_of_somebody_who_is_not_here_is_nothing(watch: Watch) -> None:
    watch.presence.told(BEE, CARD)
    watch.presence.went(CICADA, "s1")
    assert watch.here() == set()
    assert watch.presence.news() == []


def test_a_goodbye_alone_introduces_nobody(watch: Watch) -> None:
    watch.presence.came(BEE, "s1")
    watch.presence.told(BEE, leaving(CARD))
    watch.presence.went(BEE, "s1")
    assert watch.here() == set()
    assert watch.presence.news() == []


def test_whoever_only_looks_is_shown_the_cards_and_is_not_here(watch: Watch) -> None:
    watch.presence.asked()
    assert watch.presence.newcomers == 1
    assert watch.here() == set()


def test_what_is_kept_is_bounded(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence_module, "LIMIT_PEERS", 20)
    for number in range(50):
        watch.presence.came(Author(f"n{number}"), "s1")
    assert len(watch.here()) == watch.presence.newcomers == 20
    for number in range(1000):
        watch.presence.came(Author("n0"), f"s{number}")
    seen = watch.presence._seen[Author("n0")]  # pyright: ignore[reportPrivateUsage]
    assert len(seen.sessions) == LIMIT_SESSIONS
    for _ in range(LIMIT_NEWS):
        watch.presence.came(BEE, "s1")
        watch.presence.told(Author("n1"), CARD)
        watch.presence.told(Author("n1"), leaving(CARD))
        watch.presence.went(Author("n1"), "s1")
        watch.presence.came(Author("n1"), "s1")
    assert len(watch.presence.news()) == LIMIT_NEWS


steps = st.lists(
    st.tuples(
        st.sampled_from(["came", "went", "card", "goodbye", "wait", "look"]),
        st.sampled_from([BEE, CICADA]),
        st.sampled_from(["s1", "s2"]),
        st.floats(0, 2 * GRACE_S),
    ),
    max_size=40,
)


@given(steps)
def test_whoever_has_a_token_is_here_and_news_come_in_pairs(
    doings: list[tuple[str, Author, str, float]],
) -> None:
    watch = Watch()
    tokens: dict[Author, set[str]] = {BEE: set(), CICADA: set()}
    news: list[Met | Parted] = []
    for what, author, session, seconds in doings:
        match what:
            case "came":
                watch.presence.came(author, session)
                tokens[author].add(session)
            case "went":
                watch.presence.went(author, session)
                tokens[author].discard(session)
            case "card":
                watch.presence.told(author, CARD)
            case "goodbye":
                watch.presence.told(author, leaving(CARD))
            case "wait":
                watch.wait(seconds)
            case _:
                news += watch.presence.news()
        assert {author for author, held in tokens.items() if held} <= watch.here()
    watch.wait(2 * GRACE_S)
    assert {author for author, held in tokens.items() if held} == watch.here()
    news += watch.presence.news()
    for author in (BEE, CICADA):
        kinds = [type(event) for event in news if event.author == author]
        assert kinds == [Met, Parted] * (len(kinds) // 2) + [Met] * (len(kinds) % 2)
