"""Parts of a batch: they add up to the whole, fit the room, and get smaller where memory runs out."""

# pyright: standard

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from test_learner import RAGGED, SETTINGS, batch_of_everything, equal, scored, weights_of
from test_model import toy
from waggledance.forward import proof_of
from waggledance.learner.batch import Batch
from waggledance.learner.grpo import GRPO
from waggledance.learner.parts import FEWEST_TOKENS, Room
from waggledance.learner.ppo import PPO, PPOSettings
from waggledance.model import Model, load_model

DOUBTED = replace(scored("what is 3 + 3", [0, 1, 0, 0], ["6", "33", "six of them", "7" * 20]), doubted=True)
GROUPS = [*RAGGED, DOUBTED]
PPO_SETTINGS = PPOSettings(
    learning_rate=1e-3, value_learning_rate=0.1, clip=SETTINGS.clip, kl_weight=0.1, max_grad_norm=1.0,
    epochs=2, discount=1.0, trace=0.9, temperature=1.0, max_tokens=24,
)  # fmt: skip


def small_room(model: Model, tokens: int) -> int:
    return tokens * proof_of(model.network).kept_bytes


@pytest.mark.parametrize("kind", ["grpo", "ppo"])
@pytest.mark.parametrize("tokens", [20, 60, 90])
def test_learning_in_parts_is_learning_from_the_whole(tmp_path: Path, kind: str, tokens: int) -> None:
    found = []
    for name, room in (("whole", 10**6), ("parts", tokens)):
        model = toy(tmp_path / name)
        memory = small_room(model, room)
        learner = (
            GRPO(model, replace(SETTINGS, kl_weight=0.1, epochs=2, learning_rate=1e-5, memory_bytes=memory))
            if kind == "grpo"
            else PPO(model, replace(PPO_SETTINGS, learning_rate=1e-5, memory_bytes=memory))
        )
        found.append((learner.learn(GROUPS), torch.cat([w.flatten() for w in weights_of(model)])))
    (whole, weights), (parts, others) = found
    assert parts.groups == whole.groups
    assert parts.tokens == whole.tokens
    assert parts.loss == pytest.approx(whole.loss, abs=1e-5)
    assert parts.grad_norm == pytest.approx(whole.grad_norm, rel=1e-3)
    assert parts.kl == pytest.approx(whole.kl, abs=1e-5)
    # Adam turns rounding into steps where a gradient is next to nothing: by direction they agree.
    assert (weights - others).abs().mean() < 2e-6


@given(tokens=st.integers(FEWEST_TOKENS, 400))
def test_parts_are_all_rows_once_and_fit_where_a_row_does(tokens: int) -> None:
    model, batch = BATCH
    room = Room(model.network, small_room(model, tokens))
    parts = room.parts(batch)
    assert [row for part in parts for row in range(part.rows.start, part.rows.stop)] == list(
        range(len(batch.owner_R))
    )
    for part in parts:
        size = int(part.batch.prompt_mask_PS.sum() + part.batch.mask_RT.sum())
        assert size <= tokens or len(part.batch.owner_R) == 1
        assert part.batch.owner_R.unique().tolist() == list(range(len(part.batch.prompt_ids_PS)))
    assert sum(part.batch.tokens for part in parts) == batch.tokens


def _batch() -> tuple[Model, Batch]:
    model = load_model("tiny", system_prompt="")
    return model, batch_of_everything(model, GROUPS)


BATCH = _batch()


def test_a_group_that_fits_is_not_cut() -> None:
    model, batch = BATCH
    sizes = [
        int(batch.prompt_mask_PS[owner].sum() + batch.mask_RT[batch.owner_R == owner].sum())
        for owner in range(len(GROUPS))
    ]
    parts = Room(model.network, small_room(model, max(sizes))).parts(batch)
    assert sum(len(part.batch.prompt_ids_PS) for part in parts) == len(GROUPS)


def test_room_is_halved_for_want_of_memory_alone_and_not_below_a_limit(tmp_path: Path) -> None:
    room = Room(toy(tmp_path).network, 1 << 30)
    before = room.tokens
    room.halve(
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate")
    )
    room.halve(MemoryError())
    room.halve(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"))
    assert room.tokens == before // 8
    with pytest.raises(RuntimeError, match="shapes"):
        room.halve(RuntimeError("shapes do not match"))
    room.tokens = FEWEST_TOKENS
    with pytest.raises(MemoryError):
        room.halve(MemoryError())


def test_a_pass_that_runs_out_of_memory_is_made_again_in_smaller_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same step as in parts from the start, whatever had gathered before memory ran out."""
    roomy, short = toy(tmp_path / "a"), toy(tmp_path / "b")
    GRPO(roomy, replace(SETTINGS, memory_bytes=small_room(roomy, 50))).learn(GROUPS)
    learner = GRPO(short, replace(SETTINGS, memory_bytes=small_room(short, 100)))
    calls = iter([None, MemoryError()])
    real = learner._loss

    def loss(*words: object) -> object:
        if error := next(calls, None):
            raise error
        return real(*words)  # pyright: ignore

    monkeypatch.setattr(learner, "_loss", loss)
    assert learner.learn(GROUPS).groups == 4
    assert next(calls, "used up") == "used up"
    assert equal(weights_of(roomy), weights_of(short))


LIMITED = """
import resource, sys, torch
torch.set_num_threads(1)
sys.path.insert(0, {tests!r})
from dataclasses import replace
from test_learner import SETTINGS, scored
from waggledance.learner.grpo import GRPO
from waggledance.model import load_model
model = load_model("tiny")
learner = GRPO(model, replace(SETTINGS, max_tokens=600, memory_bytes=1 << 40))
texts = ["word " * 60 + str(k) for k in range(16)]
groups = [scored("?", [k % 2 for k in range(16)], texts) for _ in range(3)]
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (250 << 20),) * 2)
before = learner._room.tokens
lesson = learner.learn(groups)
print(lesson.groups, lesson.tokens > 2000, learner._room.tokens < before, lesson.grad_norm > 0)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's limits")
def test_a_process_that_has_little_memory_learns_all_the_same() -> None:
    code = LIMITED.format(tests=str(Path(__file__).parent))
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=110, check=False
    )
    assert done.stdout.split() == ["3", "True", "True", "True"], done.stderr[-2000:]
