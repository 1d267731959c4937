"""Policies: what is drawn is what the model's distribution says, whatever else is in the batch."""

# pyright: standard

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from test_model import KINDS, PAD, WINDOW, load_tiny, task, toy, toy_folder
from waggledance.errors import ModelError
from waggledance.model import Model, load_model
from waggledance.policy.hf import HFPolicy
from waggledance.policy.scripted import ScriptedPolicy
from waggledance.rollout import Rollout
from waggledance.task import SourceName, Task

QUESTIONS = ["?", "what is 2 + 2", "x" * 60, "is it?"]
TASKS = [task(question, index) for index, question in enumerate(QUESTIONS)]


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@torch.no_grad()
def next_logits(network: PreTrainedModel, ids: list[int]) -> torch.Tensor:
    """The plain way: no padding, no cache, one sequence."""
    return network(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1]


@torch.no_grad()
def recomputed(model: Model, question: Task, ids: tuple[int, ...], temperature: float = 1.0) -> torch.Tensor:
    """The log-probability of every token of a completion, the plain way."""
    prompt = model.prompt_ids(question)
    logits = model.network(input_ids=torch.tensor([[*prompt, *ids]]), use_cache=False).logits[0]
    logprobs = torch.log_softmax(logits[len(prompt) - 1 : -1] / temperature, -1)
    return logprobs.gather(1, torch.tensor(ids)[:, None])[:, 0]


def with_ends(model: Model, *more: int) -> Model:
    """Toys hardly ever end by themselves: letters that come often end, too."""
    return replace(model, end_ids=(*model.end_ids, *more))


def often_ending(model: Model) -> Model:
    counts = Counter(
        i for group in HFPolicy(model, 1.0, 20).generate(TASKS, 8, 99) for r in group for i in r.token_ids
    )
    return with_ends(model, *(i for i, _ in counts.most_common(4)))


# ── greedy ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_text_equals_generate_token_for_token(tmp_path: Path, kind: str) -> None:
    """A whole batch here, one prompt after the other there."""
    model = toy(tmp_path, kind)
    drawn = HFPolicy(model, 0, 24).generate(TASKS, 2, 1)
    for question, group in zip(TASKS, drawn, strict=True):
        ids = torch.tensor([model.prompt_ids(question)])
        whole = model.network.generate(  # pyright: ignore
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=24
        )
        plain = tuple(whole[0, ids.shape[1] :].tolist())
        assert [rollout.token_ids for rollout in group] == [plain, plain]


def test_greedy_text_of_the_tiny_model_ends_where_generate_ends() -> None:
    model = load_tiny()
    questions = [task(text) for text in ("What is 3 + 4?", "gcd of 12 and 18", "2 + 2 = ?")]
    for question, (rollout,) in zip(questions, HFPolicy(model, 0, 32).generate(questions, 1, 0), strict=True):
        ids = torch.tensor([model.prompt_ids(question)])
        whole = model.network.generate(  # pyright: ignore
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=32
        )
        assert rollout.token_ids == tuple(whole[0, ids.shape[1] :].tolist())
        assert rollout.finished == (rollout.token_ids[-1] in model.end_ids)


# ── the seed ──────────────────────────────────────────────────────────────────────────────────────────


def test_same_weights_and_seed_give_the_same_rollouts(tmp_path: Path) -> None:
    folder = toy_folder(tmp_path)
    policies = [HFPolicy(load_model(str(folder), system_prompt=""), 1.0, 12) for _ in range(2)]
    torch.manual_seed(1)  # nobody else's draws matter
    first = policies[0].generate(TASKS, 3, 5)
    torch.manual_seed(2)
    assert policies[1].generate(TASKS, 3, 5) == first
    assert policies[0].generate(TASKS, 3, 5) == first
    assert policies[0].generate(TASKS, 3, 6) != first


def test_completions_of_one_prompt_differ(tmp_path: Path) -> None:
    (group,) = HFPolicy(toy(tmp_path), 1.0, 12).generate(TASKS[:1], 8, 1)
    assert len({rollout.token_ids for rollout in group}) == 8


def test_every_task_gets_its_rollouts_in_order(tmp_path: Path) -> None:
    policy = HFPolicy(toy(tmp_path), 1.0, 3)
    assert [len(group) for group in policy.generate(TASKS, 5, 1)] == [5] * len(TASKS)
    assert policy.generate([], 5, 1) == []


# ── the distribution ──────────────────────────────────────────────────────────────────────────────────

MOST_LIKELY = 9
CHI_SQUARE_99_9 = 27.88
"""For nine degrees of freedom; the seeds are fixed, so this is passed for good or never."""


def chi_square(model: Model, question: Task, tokens: list[int], temperature: float = 1.0) -> float:
    """Drawn first tokens against the plain forward pass: the nine likeliest, and all others together."""
    logits = next_logits(model.network, model.prompt_ids(question))
    chance, likely = torch.softmax(logits.double() / temperature, -1).topk(MOST_LIKELY)
    counts = Counter(tokens)
    seen = torch.tensor([float(counts[i]) for i in likely.tolist()], dtype=torch.double)
    seen = torch.cat([seen, len(tokens) - seen.sum()[None]])
    expected = torch.cat([chance, 1 - chance.sum()[None]]) * len(tokens)
    return float(((seen - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt_neox"])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_draws_of_a_batch_follow_each_prompt_s_own_distribution(
    tmp_path: Path, kind: str, temperature: float
) -> None:
    model = toy(tmp_path, kind)
    batch = HFPolicy(model, temperature, 1).generate(TASKS, 2000, 3)
    for question, group in zip(TASKS, batch, strict=True):
        (alone,) = HFPolicy(model, temperature, 1).generate([question], 2000, 4)
        for rollouts in (group, alone):
            tokens = [rollout.token_ids[0] for rollout in rollouts]
            assert chi_square(model, question, tokens, temperature) < CHI_SQUARE_99_9


def test_the_test_above_sees_a_wrong_temperature(tmp_path: Path) -> None:
    model = toy(tmp_path)
    (group,) = HFPolicy(model, 0.8, 1).generate(TASKS[:1], 2000, 3)
    assert chi_square(model, TASKS[0], [rollout.token_ids[0] for rollout in group], 1.0) > CHI_SQUARE_99_9


@pytest.mark.parametrize("kind", KINDS)
def test_a_prompt_s_neighbours_do_not_change_what_is_drawn_after_it(tmp_path: Path, kind: str) -> None:
    """Left padding and the cache, told apart from chance: each token's probability, the plain way."""
    model = often_ending(toy(tmp_path, kind))
    for question, group in zip(TASKS, HFPolicy(model, 1.0, 12).generate(TASKS, 3, 7), strict=True):
        for rollout in group:
            plain = recomputed(model, question, rollout.token_ids).mean().item()
            assert rollout.mean_logprob == pytest.approx(plain, abs=2e-5)


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_the_log_probability_is_that_of_the_temperature(tmp_path: Path, temperature: float) -> None:
    model = toy(tmp_path)
    for question, group in zip(TASKS, HFPolicy(model, temperature, 6).generate(TASKS, 2, 7), strict=True):
        for rollout in group:
            plain = recomputed(model, question, rollout.token_ids, temperature).mean().item()
            assert rollout.mean_logprob == pytest.approx(plain, abs=2e-5)


# ── the end ───────────────────────────────────────────────────────────────────────────────────────────


def all_rollouts(model: Model, max_tokens: int = 20) -> list[Rollout]:
    return [r for group in HFPolicy(model, 1.0, max_tokens).generate(TASKS, 16, 11) for r in group]


def test_a_completion_stops_at_its_first_end_token_whichever_it_is(tmp_path: Path) -> None:
    model = often_ending(toy(tmp_path))
    rollouts = all_rollouts(model)
    assert {rollout.finished for rollout in rollouts} == {True, False}
    for rollout in rollouts:
        assert rollout.tokens == len(rollout.token_ids) <= 20
        assert rollout.finished == (rollout.token_ids[-1] in model.end_ids)
        assert rollout.finished or rollout.tokens == 20
        assert not set(rollout.token_ids[:-1]) & set(model.end_ids)
    assert len({rollout.token_ids[-1] for rollout in rollouts if rollout.finished}) > 1


def test_the_end_token_counts_and_is_no_part_of_the_text(tmp_path: Path) -> None:
    model = often_ending(toy(tmp_path))
    finished = [rollout for rollout in all_rollouts(model) if rollout.finished]
    for rollout in finished:
        assert rollout.text == model.tokenizer.decode(rollout.token_ids[:-1], skip_special_tokens=True)
    assert any(rollout.tokens == 1 and rollout.text == "" for rollout in all_rollouts(model, 1))


def test_an_end_with_the_last_token_is_an_end(tmp_path: Path) -> None:
    model = toy(tmp_path)
    (greedy,) = HFPolicy(model, 0, 3).generate(TASKS[:1], 1, 0)[0]
    last = greedy.token_ids[-1]
    if last in greedy.token_ids[:-1]:
        pytest.fail("choose another seed for the toy: its third token must be new")
    (ended,) = HFPolicy(with_ends(model, last), 0, 3).generate(TASKS[:1], 1, 0)[0]
    assert (ended.token_ids, ended.finished, greedy.finished) == (greedy.token_ids, True, False)


def test_the_settings_of_the_folder_may_name_several_end_tokens(tmp_path: Path) -> None:
    folder = toy_folder(tmp_path)
    (greedy,) = HFPolicy(load_model(str(folder), system_prompt=""), 0, 4).generate(TASKS[:1], 1, 0)[0]
    settings = json.loads((folder / "generation_config.json").read_text())
    settings["eos_token_id"] = [1, greedy.token_ids[1]]
    (folder / "generation_config.json").write_text(json.dumps(settings))
    (ended,) = HFPolicy(load_model(str(folder), system_prompt=""), 0, 4).generate(TASKS[:1], 1, 0)[0]
    assert ended.finished
    assert ended.token_ids == greedy.token_ids[: greedy.token_ids.index(greedy.token_ids[1]) + 1]


def test_special_tokens_in_the_middle_are_no_part_of_the_text(tmp_path: Path) -> None:
    model = toy(tmp_path)
    letters = model.text_ids("ab", finished=False)
    assert model.text([letters[0], 0, 2, letters[1], 1]) == "ab"
    assert PAD not in model.text([0, 0])
    assert model.text([]) == ""


# ── the window ────────────────────────────────────────────────────────────────────────────────────────


def test_a_prompt_may_fill_the_window_and_no_more(tmp_path: Path) -> None:
    policy = HFPolicy(toy(tmp_path), 1.0, 28)
    fits = task("x" * (WINDOW - 28 - 1))  # its line break is a token
    (group,) = policy.generate([fits], 1, 0)
    assert 1 <= group[0].tokens <= 28
    with pytest.raises(ModelError) as caught:
        policy.generate([fits, task("x" * (WINDOW - 28), 7)], 1, 0)
    assert str(caught.value).startswith("the prompt of toy 7 has 101 tokens, but ")
    assert "has room for 100 beside 28 of answer; lower policy.max_tokens" in str(caught.value)
    assert "\n" not in str(caught.value)


# ── scripted ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_scripted_policy_is_right_at_its_rate_and_by_its_seed() -> None:
    policy = ScriptedPolicy(lambda task: task.truth, 0.25, {SourceName("toy"): 0.75})
    other = replace(TASKS[0], source=SourceName("other"))
    answers = policy.generate([TASKS[0], other], 2000, 1)
    assert policy.generate([TASKS[0], other], 2000, 1) == answers
    assert policy.generate([TASKS[0], other], 2000, 2) != answers
    rates = [sum("<answer>yes<" in rollout.text for rollout in group) / 2000 for group in answers]
    assert rates == pytest.approx([0.75, 0.25], abs=0.04)
    for group in answers:
        assert all(rollout.finished and rollout.tokens > 0 and not rollout.token_ids for rollout in group)
