"""The ear: its prefixes are its arc and no more; it is turned to what is wanted, whoever comes and goes."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waggledance.rollout import Author
from waggledance.swarm.ear import (
    ADDRESSES,
    BITS,
    FINENESS,
    SLACK,
    Ear,
    Tuner,
    address_of,
    ear_of,
    width_for,
)
from waggledance.swarm.identity import author_of
from waggledance.swarm.key import CARDS, GROUPS, address_in, author_in, key_of, kind_in, listening

ears = st.builds(Ear, st.integers(0, ADDRESSES - 1), st.integers(1, ADDRESSES))
MOST_PREFIXES = 2 * FINENESS.bit_length() + 2


def covered(ear: Ear) -> Counter[int]:
    """Every address under one of the prefixes, and how many it is under."""
    addresses: Counter[int] = Counter()
    for prefix in ear.prefixes():
        free = BITS - len(prefix)
        low = int(prefix or "0", 2) << free
        addresses.update(range(low, low + (1 << free)))
    return addresses


@given(ears)
def test_prefixes_cover_exactly_the_arc_and_each_address_once(ear: Ear) -> None:
    assert covered(ear) == dict.fromkeys(filter(ear.hears, range(ADDRESSES)), 1)
    assert ear.share == sum(map(ear.hears, range(ADDRESSES))) / ADDRESSES


@given(st.text(max_size=40).map(Author), st.floats(0, 1.5))
def test_a_node_s_ear_needs_few_prefixes(author: Author, share: float) -> None:
    ear = ear_of(author, width_for(share))
    assert 1 <= len(ear.prefixes()) <= MOST_PREFIXES
    assert covered(ear) == dict.fromkeys(filter(ear.hears, range(ADDRESSES)), 1)


@given(st.floats(1 / ADDRESSES, 1))
def test_a_width_is_near_what_was_wanted(share: float) -> None:
    assert width_for(share) / ADDRESSES == pytest.approx(share, rel=1 / FINENESS, abs=0.5 / ADDRESSES)


def test_whoever_hears_everything_has_one_subscription() -> None:
    assert ear_of(Author("ant")).prefixes() == ("",)
    assert listening("s", GROUPS, ("",)) == ["waggle/1/s/groups/**"]


@given(st.integers(0, ADDRESSES - 1), st.sampled_from([GROUPS, CARDS]), ears)
def test_a_key_is_matched_by_one_of_an_ear_s_expressions_where_the_ear_hears_it(
    address: int, kind: str, ear: Ear
) -> None:
    author = author_of("ant", bytes(32))
    key = key_of("s", kind, address, author)
    assert (address_in(key), author_in(key), kind_in(key)) == (address, author, kind)
    matching = [
        expression
        for expression in listening("s", kind, ear.prefixes())
        if key.startswith(expression.removesuffix("**"))
    ]
    assert len(matching) == ear.hears(address)


def test_every_author_s_messages_fall_evenly_on_all_addresses() -> None:
    """Chi-square over 64 arcs of the circle, 20,000 messages; 63 degrees, p = 0.001 at 103.4."""
    for name in ("ant", "bee"):
        counts = Counter(address_of(Author(name), sequence) * 64 // ADDRESSES for sequence in range(20_000))
        assert sum((counts[arc] - 312.5) ** 2 / 312.5 for arc in range(64)) < 103.4


def test_a_crowd_s_ears_cover_the_circle_evenly() -> None:
    """4,000 nodes that each hear a sixteenth: every address is heard by about 250."""
    heard: Counter[int] = Counter()
    for number in range(4000):
        ear = ear_of(Author(f"node-{number}"), ADDRESSES // 16)
        heard.update((ear.start + step) % ADDRESSES for step in range(ear.width))
    assert min(heard[address] for address in range(ADDRESSES)) > 250 * 0.6
    assert max(heard.values()) < 250 * 1.4


class World:
    """Authors who say a few things a round; a node that hears what falls under its ear."""

    def __init__(self, seed: int) -> None:
        self._draw = np.random.default_rng(seed)
        self.tuner = Tuner(ear_of(Author("listener")))
        self.arrived = 0

    def round(self, authors: int, each: int, wanted: float) -> int:
        """How many came."""
        came = int(self._draw.binomial(authors * each, self.tuner.ear.share))
        self.arrived += came
        self.tuner.turn(self.arrived, wanted)
        return came


@pytest.mark.parametrize("authors", [8, 32, 100, 500, 2000, 5000])
@pytest.mark.parametrize("wanted", [32, 128])
def test_it_brings_what_is_wanted_whatever_the_size_of_the_swarm(authors: int, wanted: int) -> None:
    world = World(seed=authors)
    each = 4
    for _ in range(40):
        world.round(authors, each, wanted)
    brought = [world.round(authors, each, wanted) for _ in range(40)]
    expected = min(wanted, authors * each)
    assert sum(brought) / 40 == pytest.approx(expected, rel=SLACK - 1 + 1 / FINENESS)
    assert len(world.tuner.ear.prefixes()) <= MOST_PREFIXES
    if authors * each <= wanted:
        assert world.tuner.ear.width == ADDRESSES, "in a small swarm everyone hears everyone"


def test_it_settles() -> None:
    """A subscription that changes every round is traffic, too."""
    world = World(seed=1)
    for _ in range(40):
        world.round(2000, 4, 64)
    widths: list[int] = []
    for _ in range(100):
        world.round(2000, 4, 64)
        widths.append(world.tuner.ear.width)
    changes = sum(before != after for before, after in pairwise(widths))
    assert changes <= 5


@pytest.mark.parametrize("left", [0, 1, 8, 200])
def test_when_the_swarm_shrinks_it_opens_again(left: int) -> None:
    world = World(seed=3)
    for _ in range(40):
        world.round(5000, 4, 64)
    assert world.tuner.ear.share < 0.01
    for _ in range(80):
        world.round(left, 4, 64)
    if left * 4 < 64:
        assert world.tuner.ear.width == ADDRESSES
    else:
        brought = sum(world.round(left, 4, 64) for _ in range(40)) / 40
        assert brought == pytest.approx(64, rel=SLACK - 1 + 1 / FINENESS)


def test_when_the_swarm_grows_at_once_it_narrows_within_few_rounds() -> None:
    world = World(seed=4)
    for _ in range(20):
        world.round(8, 4, 64)
    assert world.tuner.ear.width == ADDRESSES
    for _ in range(12):
        world.round(5000, 4, 64)
    assert sum(world.round(5000, 4, 64) for _ in range(10)) / 10 < 2 * 64


@given(st.lists(st.tuples(st.integers(0, 10**7), st.floats(0.01, 1e6)), max_size=60))
def test_whatever_arrives_the_ear_stays_an_ear(rounds: list[tuple[int, float]]) -> None:
    tuner = Tuner(ear_of(Author("ant")))
    arrived = 0
    for came, wanted in rounds:
        arrived += came
        ear = tuner.turn(arrived, wanted)
        assert 1 <= ear.width <= ADDRESSES
        assert len(ear.prefixes()) <= MOST_PREFIXES
        assert ear.start == ear_of(Author("ant")).start
