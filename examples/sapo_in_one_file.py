"""SAPO in one file: language models that learn together by sharing what they tried, as plain text.

"Sharing is Caring: Efficient LM Post-Training with Collective RL Experience Sharing", arXiv 2509.08721.
The numbers (1) … (6) are the steps of a round, in the paper's order. Here N nodes live in one process and
share through plain lists; in Waggledance each is a process of its own and the swarm is a network. Nothing
is imported from there, yet both do the same on the same seed: `tests/test_example.py` holds them to it.
Run: python examples/sapo_in_one_file.py --nodes 4 --rounds 60 --seed 1
"""

# pyright: standard

import argparse
import hashlib
import random
import re
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch
from reasoning_gym import create_dataset
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

TINY = Path(__file__).resolve().parents[1] / "src" / "waggledance" / "tiny"
GYM, SIZE = 250908721, 1_000_000  # everybody's seed; numbers below SIZE are trained on, as many held out
LEAP_YEARS: dict[str, Any] = {"year": 2023, "tasks": ("is_leap_year",), "leap_year_range": 200}
TASKS: dict[str, Any] = {
    "easy:count_bits": create_dataset("count_bits", seed=GYM, min_n=1, max_n=15),
    "easy:leap_year": create_dataset("calendar_arithmetic", seed=GYM, **LEAP_YEARS),
    "easy:letter_counting": create_dataset("letter_counting", seed=GYM, min_words=2, max_words=3),
}
COMPLETIONS, MAX_TOKENS, HELD_OUT_TASKS = 8, 16, 30  # L, how long one may get, on how many tasks to measure
LEARNING_RATE, MAX_GRAD_NORM, CLIP_LOW, CLIP_HIGH = 3e-4, 1.0, 0.2, 0.28
MAX_AGE_ROUNDS = 4  # an older group was tried by an older model
MIXES = ((8, 0), (4, 4))  # I own and J foreign groups a round: as much to train on, half the work to try


def draw(chance: torch.Generator, _ids: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """Leaves one token a row, drawn by one random number a row."""
    sums = logits.softmax(-1).cumsum(-1)
    at = torch.rand(len(sums), generator=chance)[:, None] * sums[:, -1:]
    token = torch.searchsorted(sums, at, right=True).clamp(max=sums.shape[-1] - 1)
    return torch.full_like(logits, -torch.inf).scatter(-1, token, 0.0)


def derive(*words: str | int) -> int:
    """A seed for every draw: no generator outlives its draw, so no draw can disturb another."""
    text = "\x1f".join(f"{type(word).__name__}:{word}" for word in words)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


class Task(NamedTuple):
    source: str
    number: int
    question: str
    truth: str


class Completion(NamedTuple):
    text: str
    finished: bool  # by its author, so an end token belongs behind the text
    ids: tuple[int, ...] = ()  # as drawn; they stay at home, for others may have another tokenizer


class Group(NamedTuple):
    """One task's completions by one author. It names the task: who takes it builds it and judges itself."""

    source: str
    number: int
    completions: tuple[Completion, ...]


class Scored(NamedTuple):
    group: Group
    task: Task
    rewards: tuple[float, ...]

    @property
    def informative(self) -> bool:
        """Where all are equally good or bad, nobody beats the others: no advantage, no gradient."""
        return len(set(self.rewards)) > 1


def held_out(question: str) -> bool:
    """By the question and not by the task's number: small sources ask the same under many."""
    digest = hashlib.blake2b(question.encode(), digest_size=8, person=b"honey").digest()
    return int.from_bytes(digest, "big") % 10 == 0


def build(source: str, number: int) -> Task:
    entry, item = TASKS[source][number], number
    while held_out(entry["question"]) != (number >= SIZE):  # wrong side: draw again
        item += 2 * SIZE
        entry = TASKS[source][item]
    return Task(source, number, entry["question"], entry["answer"])


def verify(group: Group) -> Scored:
    """(5) 1 or 0: what stands between the last answer tags is right or is not. The format earns nothing."""
    task = build(group.source, group.number)
    said = [re.match(r".*<answer>(.*?)</answer>", tried.text, re.DOTALL) for tried in group.completions]
    right = [match is not None and match[1].strip().casefold() == task.truth.casefold() for match in said]
    return Scored(group, task, tuple(map(float, right)))


class Node:
    def __init__(self, name: str, seed: int, own: int, foreign: int, swarm: list["Node"]) -> None:
        self.name, self.seed, self.round_number = name, seed, 0
        self.own, self.foreign = own, foreign  # the paper's I and J
        self.swarm = swarm  # everybody, this node too
        self.inbox: list[Group] = []
        self.pool: list[tuple[int, Group]] = []  # (round of arrival, group)
        self.tokenizer: Any = AutoTokenizer.from_pretrained(TINY)
        self.model: Any = AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32).eval()
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=LEARNING_RATE)

    def round(self) -> float:
        """The node's own reward comes out: of what it tried in this round, before it learned."""
        own = [verify(group) for group in self.generate(self.draw(), self.derive("generate"))]
        self.share(own)
        self.learn(self.sample(own))
        return fmean(reward for scored in own for reward in scored.rewards)

    def draw(self) -> list[Task]:
        """(1) I tasks. They hang on name and round, so that nobody picks easy ones."""
        self.round_number += 1
        sources = [list(TASKS)[self.derive("source", k) % len(TASKS)] for k in range(self.own)]
        return [build(source, self.derive("index", k) % SIZE) for k, source in enumerate(sources)]

    @torch.no_grad()
    def generate(self, tasks: list[Task], seed: int) -> list[Group]:
        """(2) A group for each task: L completions."""
        prompts = {"input_ids": [self.prompt_ids(task) for task in tasks]}
        padded = self.tokenizer.pad(prompts, padding_side="left", return_tensors="pt")
        settings = {"num_return_sequences": COMPLETIONS, "max_new_tokens": MAX_TOKENS, "do_sample": True}
        one = [partial(draw, torch.Generator().manual_seed(seed))]
        rows = self.model.generate(**padded, **settings, top_k=0, logits_processor=one)
        drawn = rows[:, padded["input_ids"].shape[1] :].view(len(tasks), COMPLETIONS, -1).tolist()
        groups = [tuple(map(self.completion, ids)) for ids in drawn]
        return [Group(task.source, task.number, tried) for task, tried in zip(tasks, groups, strict=True)]

    def share(self, own: list[Scored]) -> None:
        """(3) Every own group, to everybody, as text."""
        for group, _, _ in own:
            text_only = tuple(tried._replace(ids=()) for tried in group.completions)
            for peer in [node for node in self.swarm if node is not self]:
                peer.inbox.append(group._replace(completions=text_only))

    def sample(self, own: list[Scored]) -> list[Scored]:
        """(4) The own groups and J foreign ones: those without advantage dropped, the others uniformly."""
        now = self.round_number
        self.pool = [(at, group) for at, group in self.pool if now - at <= MAX_AGE_ROUNDS]
        self.pool += [(now, group) for group in self.inbox]
        self.inbox.clear()
        uniform, taken = random.Random(self.derive("sample")), []
        while self.pool and len(taken) < self.foreign:  # or fewer: waiting for more would be a barrier
            _, group = self.pool.pop(uniform.randrange(len(self.pool)))  # gone, useful or not
            taken += [scored for scored in [verify(group)] if scored.informative]
        return own + taken

    def learn(self, batch: list[Scored]) -> tuple[float, float]:
        """(6) A GRPO step on own and foreign alike, "regardless of how unlikely". Out: loss and norm."""
        informative = [scored for scored in batch if scored.informative]
        if not informative:
            return 0.0, 0.0
        rows, credit = [], []
        for group, task, rewards in informative:
            rows += [(self.prompt_ids(task), self.completion_ids(tried)) for tried in group.completions]
            r = torch.tensor(rewards)
            credit.append((r - r.mean()) / (r.std() + 1e-4))
        advantage = torch.cat(credit)[:, None]
        new, mask = self.logprobs(rows)
        # One step a batch: the ratio is 1, clips nothing and has the policy gradient as its gradient. That
        # goes for foreign tokens too: the old policy is this node's, not that of whoever wrote them.
        ratio = (new - new.detach()).exp()
        gain = torch.min(ratio * advantage, ratio.clamp(1 - CLIP_LOW, 1 + CLIP_HIGH) * advantage)
        gain_per_completion = (gain * mask).sum(1) / mask.sum(1).clamp(min=1)
        # The mean is over all completions: those without advantage were left out because they gain 0.
        loss = -gain_per_completion.sum() / sum(len(scored.rewards) for scored in batch)
        self.optimiser.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), MAX_GRAD_NORM)
        self.optimiser.step()
        return loss.item(), norm.item()

    def prompt_ids(self, task: Task) -> list[int]:
        chat = [{"role": "user", "content": task.question}]
        return self.tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)

    def completion(self, ids: list[int]) -> Completion:
        end = self.tokenizer.eos_token_id
        kept = ids[: ids.index(end) + 1] if end in ids else ids
        return Completion(self.tokenizer.decode(kept, skip_special_tokens=True), end in ids, tuple(kept))

    def completion_ids(self, tried: Completion) -> list[int]:
        if tried.ids:
            return list(tried.ids)
        # Foreign text, in this node's tokens; nothing in it may turn into an end token.
        ids = self.tokenizer(tried.text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        return [*ids, *[self.tokenizer.eos_token_id] * tried.finished][:MAX_TOKENS]

    def logprobs(self, rows: list[tuple[list[int], list[int]]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Of every token after the first; the mask is 1 where it is a completion's."""
        ids = pad_sequence([torch.tensor(prompt + tried) for prompt, tried in rows], batch_first=True)
        where = [torch.tensor([0.0] * len(prompt) + [1.0] * len(tried)) for prompt, tried in rows]
        # Padding comes last, where a causal model does not look: it needs no attention mask.
        logprobs = self.model(input_ids=ids[:, :-1]).logits.float().log_softmax(-1)
        return logprobs.gather(-1, ids[:, 1:, None])[..., 0], pad_sequence(where, batch_first=True)[:, 1:]

    def held_out_reward(self) -> float:
        """On questions that nobody trains on; the same ones and the same seed before and after."""
        places = [(list(TASKS)[k % len(TASKS)], SIZE + k // len(TASKS)) for k in range(HELD_OUT_TASKS)]
        tried = self.generate([build(*place) for place in places], derive(self.seed, self.name, "heldout"))
        return fmean(reward for group in tried for reward in verify(group).rewards)

    def derive(self, *words: str | int) -> int:
        return derive(self.seed, self.name, self.round_number, *words)


def show(what: str, columns: list[list[float]]) -> None:
    print(f"{what:24}", *(f"{fmean(rewards):8.4f}" for rewards in columns), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="The same nodes twice: alone (8/0) and sharing (4/4).")
    for flag, default in (("--nodes", 4), ("--rounds", 60), ("--seed", 1)):
        parser.add_argument(flag, type=int, default=default, help=f"default: {default}")
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    swarms: list[list[Node]] = [[] for _ in MIXES]
    for nodes, mix in zip(swarms, MIXES, strict=True):
        nodes += [Node(f"n{k}", options.seed, *mix, nodes) for k in range(options.nodes)]
    print(f"{'reward, mean of nodes':24}", *(f"{own:>6}/{foreign}" for own, foreign in MIXES))
    show("held-out, before", [[node.held_out_reward() for node in nodes] for nodes in swarms])
    for start in range(0, options.rounds, 10):
        rounds = range(start + 1, min(start + 10, options.rounds) + 1)
        own = [[node.round() for _ in rounds for node in nodes] for nodes in swarms]
        show(f"own, rounds {rounds[0]} to {rounds[-1]}", own)
    show("held-out, after", [[node.held_out_reward() for node in nodes] for nodes in swarms])


if __name__ == "__main__":
    main()
