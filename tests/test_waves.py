"""Generation in waves: what does not fit is drawn in smaller ones, and it is the same text."""

# pyright: standard

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from test_model import toy
from test_policy import TASKS, often_ending
from test_prefix import unproven
from waggledance.policy import hf
from waggledance.policy.hf import HFPolicy
from waggledance.policy.waves import Room, Wave
from waggledance.rollout import Rollout

NO_ROOM = RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate")


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def ids(groups: list[tuple[Rollout, ...]]) -> list[tuple[int, ...]]:
    return [rollout.token_ids for group in groups for rollout in group]


def short_of(monkeypatch: pytest.MonkeyPatch, most_rows: int) -> list[int]:
    """Memory for so many rows, no more; the sizes that were tried."""
    tried: list[int] = []
    for name in ("Shared", "Plain"):
        real = getattr(hf, name)

        def growing(*words: object, real: type = real) -> object:
            _, prompts, completions, *_ = words
            tried.append(len(prompts) * completions)  # pyright: ignore
            if tried[-1] > most_rows:
                raise NO_ROOM
            return real(*words)

        monkeypatch.setattr(hf, name, growing)
    return tried


@pytest.mark.parametrize("way", ["shared", "plain"])
@pytest.mark.parametrize("most_rows", [1, 2, 5, 11])
def test_without_memory_for_a_wave_the_same_is_drawn_in_smaller_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, most_rows: int
) -> None:
    model = often_ending(toy(tmp_path))
    if way == "plain":
        unproven(model)
    expected = ids(HFPolicy(model, 1.0, 16).generate(TASKS, 5, 3))
    tried = short_of(monkeypatch, most_rows)
    policy = HFPolicy(model, 1.0, 16)
    assert ids(policy.generate(TASKS, 5, 3)) == expected
    assert tried[0] == 5 * len(TASKS)
    assert sum(rows for rows in tried if rows <= most_rows) == 5 * len(TASKS)


def test_the_next_round_begins_with_waves_that_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = HFPolicy(toy(tmp_path), 1.0, 16)
    tried = short_of(monkeypatch, 5)
    policy.generate(TASKS, 5, 3)
    assert max(tried) == 20
    tried.clear()
    policy.generate(TASKS, 5, 3)
    assert max(tried) <= 10  # questions differ in length: of the shortest, two may still stand together


def test_a_single_row_without_memory_and_any_other_error_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = HFPolicy(toy(tmp_path), 1.0, 4)
    with monkeypatch.context() as patch:
        short_of(patch, 0)
        with pytest.raises(RuntimeError, match="can't allocate memory"):
            policy.generate(TASKS, 2, 3)

    def broken(*_words: object) -> object:
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(hf, "Shared", broken)
    with pytest.raises(RuntimeError, match="shapes"):
        HFPolicy(policy.model, 1.0, 4).generate(TASKS, 2, 3)


@given(st.lists(st.integers(0, 50), unique=True, max_size=12), st.integers(1, 9), st.integers(1, 400))
def test_waves_hold_every_row_once_and_fit_where_a_question_does(
    places: list[int], completions: int, limit: int
) -> None:
    def needed(wave: Wave) -> int:
        return sum(place + 7 * len(wave.part) for place in wave.places)

    waves = Room(limit).waves(places, completions, needed)
    rows = [row for wave in waves for row in wave.rows(completions)]
    assert rows == [place * completions + g for place in places for g in range(completions)]
    assert all(needed(wave) <= limit or len(wave.places) == 1 for wave in waves)
    for wave in waves:
        halves = wave.halves()
        assert halves or len(wave.rows(completions)) == 1
        halved = [row for half in halves for row in half.rows(completions)]
        assert sorted(halved) == (sorted(wave.rows(completions)) if halves else [])


LIMITED = """
import resource, sys, torch
torch.set_num_threads(1)
sys.path.insert(0, {tests!r})
from dataclasses import replace
from test_policy import TASKS
from waggledance.model import load_model
from waggledance.policy.hf import HFPolicy
model = replace(load_model("tiny"), end_ids=())
policy = HFPolicy(model, 1.0, 200, cache_bytes=1 << 40)
HFPolicy(model, 1.0, 4).generate(TASKS, 2, 1)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (100 << 20),) * 2)
drawn = policy.generate(TASKS, 64, 1)
print(len(drawn), sum(rollout.tokens for group in drawn for rollout in group), policy._room.bytes < 1 << 40)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's limits")
def test_a_process_that_has_little_memory_draws_all_the_same() -> None:
    code = LIMITED.format(tests=str(Path(__file__).parent))
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=110, check=False
    )
    assert done.stdout.split() == ["4", str(4 * 64 * 200), "True"], done.stderr[-2000:]
