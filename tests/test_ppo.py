"""PPO: advantages and losses in plain floats, a whole PPO written again, and what it must not touch."""

# pyright: standard

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from test_learner import (
    RAGGED,
    SHORTEST,
    batch_of_everything,
    by_hand,
    equal,
    own_groups,
    plain_logprobs,
    rows_of,
    scored,
    weights_of,
)
from test_model import KINDS, toy
from waggledance.learner.advantage import generalised_advantages
from waggledance.learner.logprobs import token_logprobs, token_logprobs_and_states
from waggledance.learner.loss import Clip, policy_loss, value_loss
from waggledance.learner.ppo import PPO, PPOSettings
from waggledance.model import Model
from waggledance.rollout import ScoredGroup

SETTINGS = PPOSettings(
    learning_rate=1e-3, value_learning_rate=0.1, clip=Clip(0.2, 0.28), kl_weight=0.0, max_grad_norm=1.0,
    epochs=1, discount=1.0, trace=0.95, temperature=1.0, max_tokens=24,
)  # fmt: skip


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


# ── advantages and losses by hand ─────────────────────────────────────────────────────────────────────


def test_advantages_by_hand() -> None:
    """γ = 0.9, λ = 0.5; three tokens, then one alone, then none at all."""
    values = torch.tensor([[0.5, 0.2, 0.4], [0.3, 7.0, 7.0], [7.0, 7.0, 7.0]])
    mask = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    found = generalised_advantages(torch.tensor([1.0, 0.0, 1.0]), values, mask, 0.9, 0.5)
    last = 1 - 0.4
    middle = (0.9 * 0.4 - 0.2) + 0.45 * last
    first = (0.9 * 0.2 - 0.5) + 0.45 * middle
    assert found[0].tolist() == pytest.approx([first, middle, last])
    assert found[1].tolist() == pytest.approx([0 - 0.3, 0, 0])
    assert found[2].tolist() == [0, 0, 0]


ROWS = st.lists(
    st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.lists(st.floats(-2, 2, width=32), max_size=5)),
    min_size=1,
    max_size=4,
)


@given(ROWS, st.floats(0, 1), st.floats(0, 1))
def test_advantages_are_those_of_the_definition(
    rows: list[tuple[float, list[float]]], discount: float, trace: float
) -> None:
    """Each row by the sum over all later surprises, whatever lies under the padding."""
    width = max(1, *(len(values) for _, values in rows))
    found = generalised_advantages(
        torch.tensor([reward for reward, _ in rows]),
        torch.tensor([[*values, *[9.0] * (width - len(values))] for _, values in rows]),
        torch.tensor([[1.0] * len(values) + [0.0] * (width - len(values)) for _, values in rows]),
        discount,
        trace,
    )
    for line, (reward, values) in zip(found.tolist(), rows, strict=True):
        ends = [*values[1:], 0.0]
        last = len(values) - 1
        surprises = [
            (reward if t == last else 0) + discount * ends[t] - values[t] for t in range(len(values))
        ]
        expected = [
            sum((discount * trace) ** (k - t) * surprises[k] for k in range(t, len(values)))
            for t in range(len(values))
        ]
        assert line == pytest.approx([*expected, *[0.0] * (width - len(values))], abs=1e-4)


def test_the_policy_loss_with_a_credit_a_token_by_hand() -> None:
    batch, old, new = by_hand()
    advantages = torch.tensor([[1.0, -1.0], [2.0, 9.0], [0.0, 0.5]])
    loss = policy_loss(new, old, None, batch, Clip(0.2, 0.28), 0.0, credit_RT=advantages)
    # Ratios 1.5 and 1.1; 0.5 alone; 0.9 and 1.5; weights 1, 1 and 0.5.
    rows = [-(1.28 - 1.1) / 2, -2 * 0.5, -0.5 * (0 + 0.5 * 1.28) / 2]
    assert loss.value.item() == pytest.approx(sum(rows) / 4, rel=1e-5)
    assert loss.clipped.item() == pytest.approx(1 / 2 + 0 + 1 / 2)


def test_the_value_loss_by_hand() -> None:
    batch, _, _ = by_hand()
    values = torch.tensor([[0.5, 0.0], [1.0, 9.0], [0.0, 1.0]])
    returns = torch.tensor([[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
    rows = [(0.25 + 1) / 2 / 2, 1 / 2, 0.5 * (0 + 1) / 2 / 2]
    assert value_loss(values, returns, batch).item() == pytest.approx(sum(rows) / 4)


# ── states ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("groups", [RAGGED, SHORTEST], ids=["ragged", "shortest"])
def test_states_are_those_of_a_plain_pass(tmp_path: Path, kind: str, groups: list[ScoredGroup]) -> None:
    model = toy(tmp_path, kind)
    batch = batch_of_everything(model, groups)
    with torch.no_grad():
        logprobs, states = token_logprobs_and_states(model.network, batch, 0.7)
        assert torch.allclose(logprobs, token_logprobs(model.network, batch, 0.7), atol=1e-6)
        for place, (prompt, row) in enumerate(rows_of(model, groups)):
            plain = plain_states(model, prompt, row)
            assert torch.allclose(states[place, : len(row)], plain, atol=1e-4)


def plain_states(model: Model, prompt: list[int], row: list[int]) -> Tensor:
    seen = model.network(
        input_ids=torch.tensor([[*prompt, *row]]), use_cache=False, output_hidden_states=True
    )
    return seen.hidden_states[-1][0, len(prompt) - 1 : len(prompt) + len(row) - 1]


# ── PPO, written again ────────────────────────────────────────────────────────────────────────────────


class PlainPPO:
    """One rollout at a time, in the order of the textbook. It knows no batches, no masks and no cache."""

    def __init__(self, model: Model, settings: PPOSettings) -> None:
        self.model, self.settings = model, settings
        width = model.network.config.hidden_size
        self.slope = torch.zeros(width, requires_grad=True)
        self.base = torch.zeros(1, requires_grad=True)
        self.adam = torch.optim.Adam(
            [
                {"params": list(model.network.parameters()), "lr": settings.learning_rate},
                {"params": [self.slope, self.base], "lr": settings.value_learning_rate},
            ]
        )

    def values(self, prompt: list[int], row: list[int]) -> Tensor:
        states = plain_states(self.model, prompt, row).detach()
        mean, spread = states.mean(1, keepdim=True), states.var(1, keepdim=True, correction=0)
        return ((states - mean) / (spread + 1e-5).sqrt()) @ self.slope / len(self.slope) + self.base

    def learn(self, groups: Sequence[ScoredGroup]) -> list[float]:
        rewards = [reward for one in groups for reward in one.rewards]
        drawn = [list(r.token_ids) for one in groups for r in one.group.rollouts]
        prompts = [self.model.prompt_ids(one.task) for one in groups for _ in one.rewards]
        rows = list(zip(prompts, drawn, strict=True))
        old = [plain_logprobs(self.model, [one], 1.0)[0].detach() for one in rows]
        guesses = [self.values(*one).detach() for one in rows]
        gains = [self.gains(reward, guess.tolist()) for reward, guess in zip(rewards, guesses, strict=True)]
        losses: list[float] = []
        for _ in range(self.settings.epochs):
            total = torch.zeros(())
            for one, then, guess, gain in zip(rows, old, guesses, gains, strict=True):
                ratio = (plain_logprobs(self.model, [one], 1.0)[0] - then).exp()
                gained = torch.minimum(ratio * gain, ratio.clamp(0.8, 1.28) * gain).mean()
                missed = ((self.values(*one) - (gain + guess)) ** 2).mean() / 2
                total = total + (missed - gained) / len(rows)
            self.adam.zero_grad()
            total.backward()
            torch.nn.utils.clip_grad_norm_(self.model.network.parameters(), self.settings.max_grad_norm)
            self.adam.step()
            losses.append(total.item())
        return losses

    def gains(self, reward: float, guess: list[float]) -> Tensor:
        gains, later = [0.0] * len(guess), 0.0
        for t in reversed(range(len(guess))):
            ahead = reward if t == len(guess) - 1 else self.settings.discount * guess[t + 1]
            later = ahead - guess[t] + self.settings.discount * self.settings.trace * later
            gains[t] = later
        return torch.tensor(gains)


@pytest.mark.parametrize("kind", ["llama", "gpt_neox"])
def test_a_node_is_plain_ppo(tmp_path: Path, kind: str) -> None:
    """Adam turns rounding into steps where a gradient is next to nothing, so weights agree on the whole."""
    settings = replace(SETTINGS, epochs=2, discount=0.9, trace=0.8)
    ours, theirs = toy(tmp_path / "ours", kind), toy(tmp_path / "theirs", kind)
    start = weights_of(ours)
    learner, plain = PPO(ours, settings), PlainPPO(theirs, settings)
    for number in range(2):
        groups = own_groups(ours, number)
        losses = plain.learn(groups)
        assert learner.learn(groups).loss == pytest.approx(sum(losses) / len(losses), abs=1e-5)
    apart = torch.cat([(a - b).flatten() for a, b in zip(weights_of(ours), weights_of(theirs), strict=True)])
    moved = torch.cat([(a - b).flatten() for a, b in zip(weights_of(ours), start, strict=True)])
    assert apart.norm() < 1e-2 * moved.norm()


# ── what it learns from ───────────────────────────────────────────────────────────────────────────────


def test_the_first_step_without_expectations_is_reinforce(tmp_path: Path) -> None:
    """All wrong and nothing expected: no gain, no miss, no movement."""
    model = toy(tmp_path)
    start = weights_of(model)
    lesson = PPO(model, SETTINGS).learn([scored("?", [0, 0], ["a", "b"])])
    assert (lesson.groups, lesson.loss, lesson.grad_norm, lesson.value_loss) == (1, 0, 0, 0)
    assert equal(weights_of(model), start)


def test_a_group_of_one_teaches_and_so_does_one_of_equal_rewards(tmp_path: Path) -> None:
    for groups in ([scored("?", [1], ["yes"])], [scored("?", [1, 1], ["yes", "yes"])]):
        model = toy(tmp_path)
        rows = rows_of(model, groups)
        with torch.no_grad():
            before = plain_logprobs(model, rows, 1.0).sum()
        lesson = PPO(model, SETTINGS).learn(groups)
        with torch.no_grad():
            assert plain_logprobs(model, rows, 1.0).sum() > before
        assert lesson.groups == 1
        assert lesson.value_loss > 0


def test_expectations_come_near_what_happens(tmp_path: Path) -> None:
    """A learner that moves no policy: its misses fall to nearly nothing."""
    learner = PPO(toy(tmp_path), replace(SETTINGS, learning_rate=1e-12, epochs=2, value_learning_rate=0.5))
    groups = [scored("always", [1, 1], ["yes", "no"]), scored("never" * 5, [0, 0], ["yes", "no"])]
    first, *_, last = [learner.learn(groups).value_loss for _ in range(15)]
    assert first > 0.05
    assert last < 0.2 * first


@pytest.mark.parametrize(
    "change",
    [{"discount": 0.5}, {"trace": 0.0}, {"value_learning_rate": 1.0}, {"kl_weight": 1.0}, {"epochs": 2},
     {"clip": Clip(0.0, 0.0)}, {"max_grad_norm": 1e-3}, {"learning_rate": 1e-4}, {"temperature": 0.5}],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_every_setting_changes_what_is_learned(tmp_path: Path, change: dict[str, float]) -> None:
    def learned(settings: PPOSettings) -> list[Tensor]:
        model = toy(tmp_path)
        learner = PPO(model, settings)
        for _ in range(2):
            learner.learn(RAGGED)
        return weights_of(model)

    several = replace(SETTINGS, epochs=3)
    assert not equal(learned(several), learned(replace(several, **change)))


def test_the_pull_of_a_kl_weight_shows_in_the_lesson(tmp_path: Path) -> None:
    learner = PPO(toy(tmp_path), replace(SETTINGS, kl_weight=0.5))
    lessons = [learner.learn(RAGGED) for _ in range(3)]
    assert lessons[0].kl == pytest.approx(0, abs=1e-6)
    assert lessons[-1].kl > 0


def test_nothing_that_fits_is_no_step(tmp_path: Path) -> None:
    model = toy(tmp_path)
    learner = PPO(model, SETTINGS)
    learner.learn(RAGGED)
    weights = weights_of(model)
    for groups in ([], [scored("?", [1, 0], ["long " * 20, "b"])]):
        lesson = learner.learn(groups)
        assert (lesson.groups, lesson.tokens, lesson.value_loss) == (0, 0, 0)
    assert equal(weights_of(model), weights)
