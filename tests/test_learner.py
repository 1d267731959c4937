"""Learning: log-probabilities, credit and loss against plain ones, and a whole GRPO written again."""

# pyright: standard

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from test_model import KINDS, task, toy
from waggledance.errors import DivergedError
from waggledance.learner.batch import Batch, make_batch
from waggledance.learner.credit import SMALLEST_SPREAD, group_relative
from waggledance.learner.grpo import GRPO, GRPOSettings
from waggledance.learner.logprobs import token_logprobs
from waggledance.learner.loss import Clip, policy_loss
from waggledance.learner.none import NoLearner
from waggledance.model import Model, load_model
from waggledance.policy.hf import HFPolicy
from waggledance.rollout import Author, Group, Rollout, ScoredGroup
from waggledance.task import Digest

SETTINGS = GRPOSettings(
    learning_rate=1e-3, clip=Clip(0.2, 0.28), kl_weight=0.0, max_grad_norm=1.0, epochs=1, temperature=1.0,
    max_tokens=24,
)  # fmt: skip


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def scored(
    question: str,
    rewards: Sequence[float],
    texts: Sequence[str],
    *,
    weight: float = 1.0,
    finished: bool = True,
) -> ScoredGroup:
    """A group as it comes from a peer: text alone."""
    asked = task(question)
    rollouts = tuple(Rollout(text, finished, len(text) + 1, -1.0) for text in texts)
    group = Group(Author("peer"), 1, asked.source, Digest("d"), asked.index, rollouts)
    return ScoredGroup(group, asked, tuple(rewards), weight)


RAGGED = [
    scored("?", [1, 0], ["yes", "a much longer answer"]),
    scored("x" * 60, [0, 0, 1, 0, 0], ["no", "", "perhaps", "n", "never again"]),
    scored("alone", [1], ["the only one of its group"]),
    scored("what is 2 + 2", [1, 0, 0.5], ["4", "5", "<answer>4</answer>"], weight=0.5),
]
"""Prompts of 2 to 61 tokens, groups of 1, 2, 3 and 5, completions of 1 (the end token alone) to 26."""
SHORTEST = [scored("?", [1, 0], ["", ""]), scored("x" * 30, [0, 1], ["", ""])]
"""Nothing but end tokens: every completion is of length 1."""


def rows_of(model: Model, groups: Sequence[ScoredGroup]) -> list[tuple[list[int], list[int]]]:
    """Prompt and completion of every rollout."""
    return [
        (model.prompt_ids(one.task), model.text_ids(r.text, finished=r.finished))
        for one in groups
        for r in one.group.rollouts
    ]


def plain_logprobs(model: Model, rows: Sequence[tuple[list[int], list[int]]], temperature: float) -> Tensor:
    """One right-padded pass over whole sequences without a cache, [R, T]."""
    width = max(len(prompt) + len(row) for prompt, row in rows)
    ids = torch.tensor([[*p, *row, *[0] * (width - len(p) - len(row))] for p, row in rows])
    mask = torch.tensor([[1] * (len(p) + len(row)) + [0] * (width - len(p) - len(row)) for p, row in rows])
    logits = model.network(input_ids=ids, attention_mask=mask, use_cache=False).logits
    logprobs = torch.log_softmax(logits / temperature, -1)
    most = max(len(row) for _, row in rows)
    lines: list[Tensor] = []
    for line, (prompt, row) in zip(logprobs, rows, strict=True):
        predicting = line[len(prompt) - 1 : len(prompt) - 1 + len(row)]
        taken = predicting.gather(1, torch.tensor(row)[:, None])[:, 0]
        lines.append(torch.cat([taken, torch.zeros(most - len(row))]))
    return torch.stack(lines)


def whole_batch(model: Model, groups: Sequence[ScoredGroup]) -> Batch:
    """Like the package's, but with the uninformative groups in it."""
    differing = [replace(one, rewards=tuple(float(k) for k in range(len(one.rewards)))) for one in groups]
    assert all(one.informative for one in differing), "a group of one cannot be made informative"
    batch = make_batch(model, differing, 30)
    assert batch
    credit = torch.cat([group_relative(torch.tensor(one.rewards, dtype=torch.float)) for one in groups])
    return replace(batch, credit_R=credit)


def gradients(model: Model) -> list[Tensor]:
    return [weight.grad for weight in model.network.parameters() if weight.grad is not None]


# ── log-probabilities ─────────────────────────────────────────────────────────────────────────────────


def batch_of_everything(model: Model, groups: Sequence[ScoredGroup]) -> Batch:
    """Every group in, groups of one too: `make_batch` itself leaves those out."""
    rows = [row for _, row in rows_of(model, groups)]
    prompts = [model.prompt_ids(one.task) for one in groups]
    sizes = torch.tensor([len(one.rewards) for one in groups])
    high, wide = max(map(len, prompts)), max(map(len, rows))
    return Batch(
        prompt_ids_PS=torch.tensor([[0] * (high - len(p)) + p for p in prompts]),
        prompt_mask_PS=torch.tensor([[0] * (high - len(p)) + [1] * len(p) for p in prompts]),
        ids_RT=torch.tensor([row + [0] * (wide - len(row)) for row in rows]),
        mask_RT=torch.tensor([[1.0] * len(row) + [0.0] * (wide - len(row)) for row in rows]),
        owner_R=torch.arange(len(groups)).repeat_interleave(sizes),
        credit_R=torch.zeros(len(rows)),
        weight_R=torch.ones(len(rows)),
        rollouts=len(rows),
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("groups", [RAGGED, SHORTEST, RAGGED[2:3]], ids=["ragged", "shortest", "one"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probabilities_and_gradients_are_those_of_a_plain_pass(
    tmp_path: Path, kind: str, groups: list[ScoredGroup], temperature: float
) -> None:
    model = toy(tmp_path, kind)
    batch = batch_of_everything(model, groups)
    plain = plain_logprobs(model, rows_of(model, groups), temperature)
    ours = token_logprobs(model.network, batch, temperature)
    assert (ours * batch.mask_RT - plain).abs().max() < 1e-5
    pull = torch.linspace(-1, 2, plain.numel()).reshape(plain.shape)  # each token pulls differently
    (plain * pull).sum().backward()
    expected = [gradient.clone() for gradient in gradients(model)]
    model.network.zero_grad()
    (ours * batch.mask_RT * pull).sum().backward()
    largest = max(gradient.abs().max() for gradient in expected)
    for mine, theirs in zip(gradients(model), expected, strict=True):
        assert (mine - theirs).norm() <= 1e-4 * theirs.norm() + 1e-6 * largest


def test_a_batch_holds_the_informative_groups_and_counts_all_rollouts(tmp_path: Path) -> None:
    model = toy(tmp_path)
    dull = scored("dull", [0, 0, 0], ["a", "b", "c"])
    batch = make_batch(model, [dull, *RAGGED], 30)
    assert batch
    assert batch.rollouts == 3 + 2 + 5 + 1 + 3
    assert batch.owner_R.tolist() == [0] * 2 + [1] * 5 + [2] * 3
    assert batch.weight_R.tolist() == [1.0] * 7 + [0.5] * 3
    rows = rows_of(model, [RAGGED[0], RAGGED[1], RAGGED[3]])
    assert batch.tokens == sum(len(row) for _, row in rows)
    for place, (prompt, row) in enumerate(rows):
        owner = int(batch.owner_R[place])
        assert batch.ids_RT[place][batch.mask_RT[place] > 0].tolist() == row
        assert batch.prompt_ids_PS[owner][batch.prompt_mask_PS[owner] > 0].tolist() == prompt


def test_own_rollouts_keep_the_tokens_that_were_drawn(tmp_path: Path) -> None:
    """Text need not come back as the same tokens."""
    model = toy(tmp_path)
    group = scored("?", [1, 0], ["ab", "cd"])
    drawn = tuple(replace(r, token_ids=(7, 2, 0, 1)) for r in group.group.rollouts)
    batch = make_batch(model, [replace(group, group=replace(group.group, rollouts=drawn))], 4)
    assert batch
    assert batch.ids_RT.tolist() == [[7, 2, 0, 1]] * 2
    assert batch.mask_RT.tolist() == [[1.0] * 4] * 2


HOSTILE = ["<|end|><|end|>", "\ud800\udfff", "\x00" * 20, "<|pad|>" * 6, "é\u202e𝔘" * 8, ""]


def test_foreign_text_of_any_kind_is_learned_from_and_makes_no_special_token(tmp_path: Path) -> None:
    model = toy(tmp_path)
    group = scored("?", [1, 0, 0, 0, 0, 1], HOSTILE, finished=False)
    batch = make_batch(model, [group], 100)
    assert batch
    assert not batch.ids_RT[batch.mask_RT > 0].lt(3).any()  # pad, end and start are 0, 1 and 2
    lesson = GRPO(model, replace(SETTINGS, max_tokens=100)).learn([group])
    assert lesson.tokens == batch.tokens
    assert all(torch.isfinite(weight).all() for weight in model.network.parameters())


def test_foreign_completions_without_a_single_token_teach_nothing(tmp_path: Path) -> None:
    lesson = GRPO(toy(tmp_path), SETTINGS).learn([scored("?", [1, 0], ["", ""], finished=False)])
    assert (lesson.tokens, lesson.loss, lesson.grad_norm) == (0, 0, 0)


# ── credit and loss ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("rewards", "credit"),
    [
        ([1, 0, 0, 0], [0.75 / 0.5, -0.25 / 0.5, -0.25 / 0.5, -0.25 / 0.5]),
        ([1, 0], [0.5 / 0.5**0.5, -0.5 / 0.5**0.5]),
        ([1, 0.5, 0], [1, 0, -1]),
        ([0, 0, 0], [0, 0, 0]),
        ([1], [0]),
    ],
)
def test_credit_is_relative_to_the_group(rewards: list[float], credit: list[float]) -> None:
    assert group_relative(torch.tensor(rewards, dtype=torch.float)).tolist() == pytest.approx(
        credit, rel=3e-4
    )


def test_a_group_of_almost_equal_crumbs_is_not_blown_up() -> None:
    assert group_relative(torch.tensor([1e-6, 0.0])).abs().max() < 1e-6 / SMALLEST_SPREAD


def by_hand() -> tuple[Batch, Tensor, Tensor]:
    """Three rollouts of at most two tokens, credits 2, -1 and -1, one of half weight, one row ended early.

    Ratios: 1.5 and 1.1; 0.5 and (padding); 0.9 and 1.5.
    """
    mask = torch.tensor([[1.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    batch = Batch(
        prompt_ids_PS=torch.zeros(1, 1, dtype=torch.long),
        prompt_mask_PS=torch.ones(1, 1, dtype=torch.long),
        ids_RT=torch.zeros(3, 2, dtype=torch.long),
        mask_RT=mask,
        owner_R=torch.zeros(3, dtype=torch.long),
        credit_R=torch.tensor([2.0, -1.0, -1.0]),
        weight_R=torch.tensor([1.0, 1.0, 0.5]),
        rollouts=4,
    )
    old = torch.tensor([[-1.0, -2.0], [-0.5, -9.0], [-3.0, -0.1]])
    return batch, old, old + torch.tensor([[1.5, 1.1], [0.5, 99.0], [0.9, 1.5]]).log()


def test_the_loss_by_hand_with_clipping_on_both_sides() -> None:
    batch, old, new = by_hand()
    loss = policy_loss(new.requires_grad_(), old, None, batch, Clip(0.2, 0.28), 0.0)
    # Credit 2: 1.5 is cut to 1.28, 1.1 stays. Credit -1: 0.5 is cut to 0.8; 0.9 stays, and so does 1.5, for
    # a bad token that became likelier is pulled back in full.
    rows = [-(2 * 1.28 + 2 * 1.1) / 2, 0.8, 0.5 * (0.9 + 1.5) / 2]
    assert loss.value.item() == pytest.approx(sum(rows) / 4, rel=1e-6)
    assert loss.clipped.item() == pytest.approx(1 / 2 + 1 + 0, rel=1e-6)
    assert loss.kl.item() == 0
    loss.value.backward()
    assert new.grad is not None
    expected = torch.tensor([[0, -2 * 1.1 / 2], [0, 0], [0.5 * 0.9 / 2, 0.5 * 1.5 / 2]]) / 4
    assert torch.allclose(new.grad, expected, rtol=1e-5)


def test_the_pull_towards_the_reference_by_hand() -> None:
    batch, old, _ = by_hand()
    ahead = torch.tensor([[0.5, -0.5], [0.0, 50.0], [1.0, 0.0]])  # 50 lies under the padding
    loss = policy_loss(old, old, old + ahead, batch, Clip(0.2, 0.28), 0.1)
    k3 = (ahead.exp() - ahead - 1).tolist()
    kl = [(k3[0][0] + k3[0][1]) / 2, 0, k3[2][0] / 2]
    rows = [0.1 * kl[0] - 2, 1.0, 0.1 * kl[2] + 0.5]  # the pull is not weighed
    assert loss.value.item() == pytest.approx(sum(rows) / 4, rel=1e-5)
    assert loss.kl.item() == pytest.approx(sum(kl), rel=1e-5)


def test_leaving_out_groups_without_credit_changes_neither_loss_nor_gradient(tmp_path: Path) -> None:
    model = toy(tmp_path)
    dull = [scored("dull " * 9, [0, 0, 0], ["long " * 5, "b", "c"]), scored("all", [1, 1], ["yes", "yes"])]
    groups = [dull[0], RAGGED[0], RAGGED[1], dull[1], RAGGED[3]]
    found: list[tuple[float, list[Tensor]]] = []
    for batch in (make_batch(model, groups, 30), whole_batch(model, groups)):
        assert batch
        model.network.zero_grad()
        logprobs = token_logprobs(model.network, batch, 1.0)
        loss = policy_loss(logprobs, logprobs.detach(), None, batch, SETTINGS.clip, 0.0)
        loss.value.backward()
        found.append((loss.value.item(), [gradient.clone() for gradient in gradients(model)]))
    (loss, grads), (whole_loss, whole_grads) = found
    assert loss == pytest.approx(whole_loss, abs=1e-6)
    largest = max(gradient.abs().max() for gradient in whole_grads)
    for mine, theirs in zip(grads, whole_grads, strict=True):
        assert (mine - theirs).abs().max() < 1e-5 * largest


def test_a_weight_scales_what_a_foreign_group_does(tmp_path: Path) -> None:
    model = toy(tmp_path)
    own, foreign = RAGGED[0], RAGGED[1]

    def gradient_of(*groups: ScoredGroup) -> Tensor:
        batch = make_batch(model, groups, 24)
        assert batch
        model.network.zero_grad()
        logprobs = token_logprobs(model.network, batch, 1.0)
        policy_loss(logprobs, logprobs.detach(), None, batch, SETTINGS.clip, 0.0).value.backward()
        return torch.cat([gradient.flatten() for gradient in gradients(model)]) * batch.rollouts

    alone, of_foreign = gradient_of(own), gradient_of(foreign)
    for weight in (0.0, 0.25, 1.0):
        both = gradient_of(own, replace(foreign, weight=weight))
        assert (both - alone - weight * of_foreign).abs().max() < 1e-5 * both.abs().max()


# ── a step ────────────────────────────────────────────────────────────────────────────────────────────


def weights_of(model: Model) -> list[Tensor]:
    return [weight.detach().clone() for weight in model.network.parameters()]


def equal(left: Sequence[Tensor], right: Sequence[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


def optimiser_state(learner: GRPO) -> Any:
    return copy.deepcopy(learner._optimiser.adam.state_dict())  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("kl_weight", [0.0, 0.1])
@pytest.mark.parametrize(
    "groups", [[], [RAGGED[2]], [scored("?", [0, 0], ["a", "b"]), scored("!", [1, 1], ["a", "b"])]]
)
def test_without_an_informative_group_nothing_moves(
    tmp_path: Path, groups: list[ScoredGroup], kl_weight: float
) -> None:
    model = toy(tmp_path)
    learner = GRPO(model, replace(SETTINGS, kl_weight=kl_weight))
    learner.learn(RAGGED)  # Adam has momentum now, and would go on by itself
    weights, state = weights_of(model), optimiser_state(learner)
    lesson = learner.learn(groups)
    assert (lesson.groups, lesson.tokens, lesson.loss, lesson.grad_norm) == (0, 0, 0, 0)
    assert equal(weights_of(model), weights)
    assert str(optimiser_state(learner)) == str(state)


def test_a_step_makes_the_right_likelier_and_the_wrong_less_likely(tmp_path: Path) -> None:
    model = toy(tmp_path)
    rows = rows_of(model, RAGGED[:1])
    with torch.no_grad():
        before = plain_logprobs(model, rows, 1.0).sum(1)
    lesson = GRPO(model, SETTINGS).learn(RAGGED[:1])
    with torch.no_grad():
        right, wrong = plain_logprobs(model, rows, 1.0).sum(1) - before
    assert right > 0 > wrong
    assert (lesson.groups, lesson.tokens) == (1, 4 + 21)
    assert lesson.loss == pytest.approx(0, abs=1e-6)  # ratios are 1, and credits sum to nothing
    assert lesson.grad_norm > 0


def test_several_epochs_clip_what_has_gone_far_enough(tmp_path: Path) -> None:
    once = GRPO(toy(tmp_path / "a"), replace(SETTINGS, learning_rate=1e-2)).learn(RAGGED)
    often = GRPO(toy(tmp_path / "b"), replace(SETTINGS, learning_rate=1e-2, epochs=6)).learn(RAGGED)
    assert once.clipped == 0
    assert 0 < often.clipped < 1
    assert often.loss < once.loss


def test_the_pull_holds_the_model_near_its_start(tmp_path: Path) -> None:
    moved: list[float] = []
    for kl_weight in (0.0, 5.0):
        model = toy(tmp_path / str(kl_weight))
        start = weights_of(model)
        learner = GRPO(model, replace(SETTINGS, kl_weight=kl_weight))
        lessons = [learner.learn(RAGGED) for _ in range(6)]
        assert lessons[0].kl == pytest.approx(0, abs=1e-6)
        assert (lessons[-1].kl > 0) == (kl_weight > 0)
        with torch.no_grad():
            now = plain_logprobs(model, rows_of(model, RAGGED), 1.0)
        for weight, first in zip(model.network.parameters(), start, strict=True):
            weight.data.copy_(first)
        with torch.no_grad():
            moved.append((now - plain_logprobs(model, rows_of(model, RAGGED), 1.0)).abs().mean().item())
    assert moved[1] < moved[0]


def test_a_gradient_that_is_not_finite_is_no_step_and_too_many_end_the_run(tmp_path: Path) -> None:
    model = toy(tmp_path)
    learner = GRPO(model, replace(SETTINGS, max_skipped=2))
    learner.learn(RAGGED)
    with torch.no_grad():
        next(model.network.parameters())[5] = float("nan")
    weights, state = weights_of(model), optimiser_state(learner)
    bad = [scored("...", [1, 0], [chr(c + 30) for c in (5, 6)]), *RAGGED]
    for _ in range(2):
        lesson = learner.learn(bad)
        assert (lesson.skipped, lesson.loss, lesson.grad_norm, lesson.groups) == (1, 0, 0, 0)
    with pytest.raises(DivergedError, match=r"was nan in 3 steps.*max_skipped allows 2") as caught:
        learner.learn(bad)
    assert "\n" not in str(caught.value)
    assert all(
        torch.equal(a.nan_to_num(7), b.nan_to_num(7)) for a, b in zip(weights_of(model), weights, strict=True)
    )
    assert str(optimiser_state(learner)) == str(state)


def test_a_sound_step_forgives_the_skipped_ones_before_it(tmp_path: Path) -> None:
    model = toy(tmp_path)
    learner = GRPO(model, replace(SETTINGS, max_skipped=1))
    weight = model.network.model.norm.weight
    for _ in range(3):
        with torch.no_grad():
            sound = weight[0].clone()
            weight[0] = float("nan")
        assert learner.learn(RAGGED).skipped == 1
        with torch.no_grad():
            weight[0] = sound
        lesson = learner.learn(RAGGED)
        assert (lesson.skipped, lesson.groups) == (0, 3)


def test_a_node_that_does_not_train_reports_what_it_could_have_learned_from() -> None:
    lesson = NoLearner().learn([*RAGGED, scored("dull", [0, 0], ["a", "b"])])
    assert (lesson.groups, lesson.tokens) == (3, 0)


# ── plain GRPO, written again ─────────────────────────────────────────────────────────────────────────


def own_groups(model: Model, number: int) -> list[ScoredGroup]:
    """A round's own groups: a policy's draws, paid for the letters in them."""
    questions = ["?", "what is 2 + 2", "x" * 40, "is it?"]
    tasks = [task(question, index) for index, question in enumerate(questions)]
    groups: list[ScoredGroup] = []
    for one, rollouts in zip(tasks, HFPolicy(model, 1.0, 12).generate(tasks, 4, number), strict=True):
        group = Group(Author("me"), number, one.source, Digest("d"), one.index, rollouts)
        groups.append(ScoredGroup(group, one, tuple(float(sum(r.token_ids) % 3 == 0) for r in rollouts)))
    return groups


class PlainGRPO:
    """The published algorithm over own groups only. It knows no peers, no weights and no reference."""

    def __init__(self, model: Model, *, cached: bool) -> None:
        self.model = model
        self.cached = cached
        """Whether the prompts come from a cache, bit for bit as in the package, or the plain way."""
        self.adam = torch.optim.Adam(model.network.parameters(), lr=SETTINGS.learning_rate, fused=True)

    def learn(self, groups: Sequence[ScoredGroup], epochs: int) -> float:
        kept = [one for one in groups if len(set(one.rewards)) > 1]
        if not kept:
            return 0.0
        rows = [list(r.token_ids) for one in kept for r in one.group.rollouts]
        width = max(map(len, rows))
        mask = torch.tensor([[1.0] * len(row) + [0.0] * (width - len(row)) for row in rows])
        advantages: list[Tensor] = []
        for one in kept:
            rewards = torch.tensor(one.rewards)
            advantages.append((rewards - rewards.mean()) / (rewards.std() + 1e-4))
        advantage = torch.cat(advantages)[:, None]
        total = sum(len(one.rewards) for one in groups)
        old, losses = None, []
        for _ in range(epochs):
            new = self.logprobs(kept, rows)
            old = new.detach() if old is None else old
            ratio = torch.exp(new - old)
            clipped = torch.clamp(ratio, 0.8, 1.28)
            objective = torch.minimum(ratio * advantage, clipped * advantage)
            loss = -((objective * mask).sum(1) / mask.sum(1)).sum() / total
            self.adam.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.network.parameters(), SETTINGS.max_grad_norm)
            self.adam.step()
            losses.append(loss.detach())
        return float(torch.stack(losses).mean())

    def logprobs(self, kept: Sequence[ScoredGroup], rows: list[list[int]]) -> Tensor:
        prompts = [self.model.prompt_ids(one.task) for one in kept]
        owner = [place for place, one in enumerate(kept) for _ in one.rewards]
        if not self.cached:
            return plain_logprobs(
                self.model, [(prompts[p], row) for p, row in zip(owner, rows, strict=True)], 1.0
            )
        high, wide = max(map(len, prompts)), max(map(len, rows))
        batch = Batch(
            prompt_ids_PS=torch.tensor([[0] * (high - len(p)) + p for p in prompts]),
            prompt_mask_PS=torch.tensor([[0] * (high - len(p)) + [1] * len(p) for p in prompts]),
            ids_RT=torch.tensor([row + [0] * (wide - len(row)) for row in rows]),
            mask_RT=torch.tensor([[1.0] * len(row) + [0.0] * (wide - len(row)) for row in rows]),
            owner_R=torch.tensor(owner),
            credit_R=torch.tensor([]),
            weight_R=torch.tensor([]),
            rollouts=0,
        )
        return token_logprobs(self.model.network, batch, 1.0)


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt_neox"])
@pytest.mark.parametrize("epochs", [1, 3])
def test_with_own_groups_alone_a_node_is_plain_grpo_bit_for_bit(
    tmp_path: Path, kind: str, epochs: int
) -> None:
    ours, theirs = toy(tmp_path / "ours", kind), toy(tmp_path / "theirs", kind)
    learner, plain = GRPO(ours, replace(SETTINGS, epochs=epochs)), PlainGRPO(theirs, cached=True)
    start, steps = weights_of(ours), 0
    for number in range(5):
        groups = own_groups(ours, number)
        assert groups == own_groups(theirs, number)
        lesson = learner.learn(groups)
        assert lesson.loss == plain.learn(groups, epochs)
        assert equal(weights_of(ours), weights_of(theirs))
        steps += lesson.groups > 0
    assert steps >= 4
    assert not equal(weights_of(ours), start)


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt_neox"])
def test_with_own_groups_alone_a_node_is_plain_grpo_over_padded_sequences(tmp_path: Path, kind: str) -> None:
    """Adam turns rounding into steps where a gradient is next to nothing, so weights agree on the whole."""
    ours, theirs = toy(tmp_path / "ours", kind), toy(tmp_path / "theirs", kind)
    learner, plain = GRPO(ours, replace(SETTINGS, epochs=2)), PlainGRPO(theirs, cached=False)
    start = weights_of(ours)
    for number in range(4):
        groups = own_groups(ours, number)
        assert learner.learn(groups).loss == pytest.approx(plain.learn(groups, 2), abs=1e-5)
    apart = torch.cat([(a - b).flatten() for a, b in zip(weights_of(ours), weights_of(theirs), strict=True)])
    moved = torch.cat([(a - b).flatten() for a, b in zip(weights_of(ours), start, strict=True)])
    assert apart.norm() < 1e-2 * moved.norm()


def test_the_same_groups_teach_the_same_twice() -> None:
    found: list[list[Tensor]] = []
    for _ in range(2):
        model = load_model("tiny")
        learner = GRPO(model, replace(SETTINGS, epochs=2))
        for number in range(2):
            learner.learn(own_groups(model, number))
        found.append(weights_of(model))
    assert equal(*found)


def test_a_foreign_group_longer_than_this_node_allows_is_left_out(tmp_path: Path) -> None:
    """Cut short, the credit of its right end would go to whatever stands before it."""
    model = toy(tmp_path)
    long, short = scored("?", [1, 0], ["blah " * 9 + "4", "5"]), scored("?", [1, 0], ["4", "5"])
    batch = make_batch(model, [long, short], max_tokens=8)
    assert batch is not None
    assert (len(batch.owner_R), batch.rollouts) == (2, 4)
    assert make_batch(model, [long], max_tokens=8) is None


def test_a_group_beyond_the_window_is_left_out(tmp_path: Path) -> None:
    model = toy(tmp_path)
    beyond = scored("x" * model.window, [1, 0], ["4", "5"])
    assert make_batch(model, [beyond], max_tokens=8) is None
