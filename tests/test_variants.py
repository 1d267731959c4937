"""Variants of GRPO, each against its own arithmetic in plain floats, and that each of them learns."""

# pyright: standard

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import torch

from test_learner import RAGGED, SETTINGS, by_hand, equal, plain_logprobs, rows_of, weights_of
from test_model import toy
from waggledance.config import LearnerConfig
from waggledance.learner.credit import centred, leave_one_out
from waggledance.learner.grpo import GRPO
from waggledance.learner.loss import Clip, policy_loss
from waggledance.learner.variant import variant_named

VARIANTS = ("grpo", "dr_grpo", "rloo", "gspo")
LIMIT = 8


def test_the_schema_offers_every_variant() -> None:
    kinds = get_args(get_args(get_type_hints(LearnerConfig, include_extras=True)["kind"])[0])
    assert set(VARIANTS) <= set(kinds)


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [([1, 0, 0, 0], [0.75, -0.25, -0.25, -0.25]), ([1, 0.5, 0], [0.5, 0, -0.5]), ([1], [0])],
)
def test_centred_credit_is_not_divided(rewards: list[float], expected: list[float]) -> None:
    assert centred(torch.tensor(rewards, dtype=torch.float)).tolist() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [([1, 0, 0, 0], [1, -1 / 3, -1 / 3, -1 / 3]), ([1, 0.5, 0], [0.75, 0, -0.75]), ([1], [0])],
)
def test_credit_against_the_others_leaves_oneself_out(rewards: list[float], expected: list[float]) -> None:
    assert leave_one_out(torch.tensor(rewards, dtype=torch.float)).tolist() == pytest.approx(expected)


# `by_hand`: credits 2, -1 and -1, weights 1, 1 and 0.5, ratios 1.5 and 1.1; 0.5 alone; 0.9 and 1.5;
# divided by 4 rollouts, clipped to 0.8 … 1.28.


@pytest.mark.parametrize(
    ("name", "rows", "clipped"),
    [
        # a token each, then the mean
        ("grpo", [-(2 * 1.28 + 2 * 1.1) / 2, 0.8, 0.5 * (0.9 + 1.5) / 2], 1 / 2 + 1 + 0),
        # a token each, then the sum over the limit of 8 tokens
        ("dr_grpo", [-(2 * 1.28 + 2 * 1.1) / 8, 0.8 / 8, 0.5 * (0.9 + 1.5) / 8], 1 / 2 + 1 + 0),
        # the product: 1.65 is cut to 1.28, 0.5 to 0.8, 1.35 stays, for credit is negative
        ("rloo", [-2 * 1.28, 0.8, 0.5 * 1.35], 1 + 1 + 0),
        # its root: 1.2845… is cut, 0.5 too, 1.1619 stays
        ("gspo", [-2 * 1.28, 0.8, 0.5 * 1.35**0.5], 1 + 1 + 0),
    ],
)
def test_the_loss_by_hand(name: str, rows: Sequence[float], clipped: float) -> None:
    batch, old, new = by_hand()
    loss = policy_loss(new, old, None, batch, Clip(0.2, 0.28), 0.0, variant_named(name, LIMIT))
    assert loss.value.item() == pytest.approx(sum(rows) / 4, rel=1e-5)
    assert loss.clipped.item() == pytest.approx(clipped, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("grpo", [[2 / 2, 2 / 2], [-1, 0], [-0.5 / 2, -0.5 / 2]]),
        ("dr_grpo", [[2 / 8, 2 / 8], [-1 / 8, 0], [-0.5 / 8, -0.5 / 8]]),
        ("rloo", [[2, 2], [-1, 0], [-0.5, -0.5]]),
        ("gspo", [[2 / 2, 2 / 2], [-1, 0], [-0.5 / 2, -0.5 / 2]]),
    ],
)
def test_the_first_step_pulls_each_token_by_its_credit(name: str, rows: list[list[float]]) -> None:
    batch, old, _ = by_hand()
    new = old.clone().requires_grad_()
    policy_loss(new, old, None, batch, Clip(0.2, 0.28), 0.0, variant_named(name, LIMIT)).value.backward()
    assert new.grad is not None
    assert torch.allclose(new.grad, -torch.tensor(rows) / 4, rtol=1e-5)


@pytest.mark.parametrize("name", VARIANTS)
def test_what_is_clipped_pulls_no_more(name: str) -> None:
    batch, old, new = by_hand()
    new = new.requires_grad_()
    policy_loss(new, old, None, batch, Clip(0.0, 0.0), 0.0, variant_named(name, LIMIT)).value.backward()
    assert new.grad is not None
    assert new.grad[0].tolist() == [0, 0]  # right and likelier already
    assert new.grad[1].tolist() == [0, 0]  # wrong and less likely already
    assert new.grad[2, 1] > 0  # wrong and likelier: pulled back


@pytest.mark.parametrize("name", VARIANTS)
def test_the_loss_of_a_batch_is_the_sum_over_its_parts(name: str) -> None:
    batch, old, new = by_hand()
    variant, reference = variant_named(name, LIMIT), old + 0.25

    def figures(rows: slice) -> torch.Tensor:
        part = replace(
            batch, mask_RT=batch.mask_RT[rows], credit_R=batch.credit_R[rows], weight_R=batch.weight_R[rows]
        )
        loss = policy_loss(new[rows], old[rows], reference[rows], part, Clip(0.2, 0.28), 0.1, variant)
        return torch.stack([loss.value, loss.kl, loss.clipped])

    assert torch.allclose(figures(slice(0, 1)) + figures(slice(1, 3)), figures(slice(0, 3)))


@pytest.mark.parametrize("name", VARIANTS)
def test_several_steps_make_the_right_likelier_and_the_wrong_less_likely(tmp_path: Path, name: str) -> None:
    model = toy(tmp_path)
    rows = rows_of(model, RAGGED[:1])
    with torch.no_grad():
        before = plain_logprobs(model, rows, 1.0).sum(1)
    lesson = GRPO(model, replace(SETTINGS, variant=name, epochs=3)).learn(RAGGED[:1])
    with torch.no_grad():
        right, wrong = plain_logprobs(model, rows, 1.0).sum(1) - before
    assert right > 0 > wrong
    assert lesson.grad_norm > 0


def test_no_two_variants_move_a_model_alike(tmp_path: Path) -> None:
    found = []
    for name in VARIANTS:
        model = toy(tmp_path / name)
        learner = GRPO(model, replace(SETTINGS, variant=name, epochs=3))
        for _ in range(2):
            learner.learn(RAGGED)
        found.append(weights_of(model))
    assert not any(equal(found[a], found[b]) for a in range(4) for b in range(a))
