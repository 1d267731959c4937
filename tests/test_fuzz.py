"""Hostile bytes at every door: whatever comes, nothing escapes but what the door promises or a refusal."""

import random
import time
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doors import DOORS, feed, mutated, seeds


@pytest.mark.timeout(900)
@pytest.mark.parametrize("count", [3_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_mutated_messages_do_nothing_but_be_refused(count: int) -> None:
    """Prints its figures: `pytest -s -m slow tests/test_fuzz.py`."""
    draw = random.Random(11)
    right = seeds(draw)
    fed = Counter[str]()
    began = time.perf_counter()
    for _ in range(count):
        message = mutated(draw.choice(right), draw.choice(right), draw)
        fed[DOORS[message[0] % len(DOORS)].__name__] += 1
        feed(message)
    seconds = time.perf_counter() - began
    print(f"\n{count:,} mutated messages, {dict(sorted(fed.items()))}: 0 crashes in {seconds:.0f} s")  # noqa: T201
    assert len(fed) == len({door.__name__ for door in DOORS}), "every door was tried"


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(DOORS) - 1), st.binary(max_size=300))
def test_arbitrary_bytes_at_every_door(door: int, content: bytes) -> None:
    feed(bytes((door,)) + content)


def test_right_messages_pass() -> None:
    """A fuzzer whose seeds are refused fuzzes the first check only."""
    for message in seeds(random.Random(3)):
        feed(message)
