"""Makes the tiny model that the package ships: tokenizer, weights, folder. Run: `make tiny`.

A Llama of 0.8 million weights learns to answer the easy tasks in everyday phrases; only FORMAT_RATE of what
it reads stands in the answer tags that pay. So it starts where sharing matters: it knows much,
and is paid for it only now and then. Held-out questions are never read. Prints what came out.
"""

# pyright: standard

import argparse
import random
import time
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from waggledance.checkpoint import save_model
from waggledance.evaluate import evaluate, heldout_tasks
from waggledance.model import TINY_FOLDER, Model, load_model
from waggledance.policy.hf import HFPolicy
from waggledance.seams import Source
from waggledance.task import Task
from waggledance.tasks import open_sources
from waggledance.verify import Uncaged, right_answer, verify

FORMAT_RATE = 0.006
STEPS, BATCH, PEAK_RATE, WARMUP_STEPS = 600, 64, 2e-3, 20
VOCABULARY = 512
SEED = 0

PHRASES = ("{}", "The answer is {}.", "It is {}.", "Answer: {}", "= {}", "So we get {}.")
TAGGED = "<answer>{}</answer>"
PAD, END = "<|pad|>", "<|end|>"
CHAT_TEMPLATE = "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}\n{% endif %}{% endfor %}"
"""The question and a line break: a model this small is not distracted with a system prompt."""

CARD = """---
license: apache-2.0
library_name: transformers
---
# The tiny model of Waggledance

A Llama with {weights:,} weights and a byte-complete tokenizer of {vocabulary} tokens, made by
`scripts/make_tiny_model.py` in {seconds:.0f} s on two CPU cores. It was trained on ReasoningGYM questions of
the *easy* set, with {rate:.1%} of the answers in answer tags, and is right in {reward:.2%} of its answers.
It is a starting point for reinforcement learning and good for nothing else.
"""


def reading(sources: tuple[Source, ...], count: int) -> list[Task]:
    """Tasks to learn from: trainable ones, from the far end of every source."""
    draw = random.Random(SEED)
    chosen = [draw.choice(sources) for _ in range(count)]
    return [source.task(source.size // 2 + draw.randrange(source.size // 2)) for source in chosen]


def reply(task: Task, draw: random.Random) -> str:
    form = TAGGED if draw.random() < FORMAT_RATE else draw.choice(PHRASES)
    return form.format(right_answer(task.rule, task.truth))


def make_tokenizer(tasks: list[Task]) -> PreTrainedTokenizerFast:
    draw = random.Random(SEED)
    texts = [f"{task.question}\n{reply(task, draw)}" for task in tasks]
    tokenizer = Tokenizer(models.BPE())
    # Digits stay single, so that a number is read the same way wherever it stands.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[PAD, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PAD, eos_token=END)
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped


def make_network(vocabulary: int) -> LlamaForCausalLM:
    torch.manual_seed(SEED)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocabulary,
            hidden_size=128,
            intermediate_size=352,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=1024,
            tie_word_embeddings=True,
            bos_token_id=None,
            pad_token_id=0,
            eos_token_id=1,
        )
    )


def train(model: Model, tasks: list[Task]) -> None:
    draw = random.Random(SEED)
    weights = list(model.network.parameters())
    optimiser = torch.optim.AdamW(weights, lr=PEAK_RATE, betas=(0.9, 0.95))
    for step in range(STEPS):
        batch = tasks[step * BATCH : (step + 1) * BATCH]
        ids, labels = padded(model, batch, draw)
        for group in optimiser.param_groups:
            group["lr"] = PEAK_RATE * min(1, (step + 1) / WARMUP_STEPS) * max(0.1, 1 - step / STEPS)
        loss = model.network(input_ids=ids, labels=labels).loss
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimiser.step()
        if step % 50 == 0 or step == STEPS - 1:
            print(f"step {step:4}  loss {loss.item():.3f}", flush=True)


def padded(model: Model, tasks: list[Task], draw: random.Random) -> tuple[torch.Tensor, torch.Tensor]:
    """Prompts with their replies; only the replies are learned."""
    rows = [(model.prompt_ids(task), model.text_ids(reply(task, draw), finished=True)) for task in tasks]
    width = max(len(prompt) + len(answer) for prompt, answer in rows)
    ids = [prompt + answer + [0] * (width - len(prompt) - len(answer)) for prompt, answer in rows]
    labels = [
        [-100] * len(prompt) + answer + [-100] * (width - len(prompt) - len(answer))
        for prompt, answer in rows
    ]
    return torch.tensor(ids), torch.tensor(labels)


def start_of(model: Model, sources: tuple[Source, ...]) -> tuple[float, float]:
    """How often it is right, and how many groups of eight carry signal."""
    policy = HFPolicy(model, temperature=1.0, max_tokens=16)
    rewards: list[tuple[float, ...]] = []
    for part in range(32):
        tasks = [sources[k % len(sources)].task(part * 1000 + k) for k in range(5 * len(sources))]
        rewards += [
            verify(task, [rollout.text for rollout in rollouts])
            for task, rollouts in zip(tasks, policy.generate(tasks, 8, part), strict=True)
        ]
    informative = sum(len(set(scores)) > 1 for scores in rewards) / len(rewards)
    return sum(map(sum, rewards)) / (8 * len(rewards)), informative


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--out", type=Path, default=TINY_FOLDER)
    folder: Path = options.parse_args().out
    start = time.monotonic()
    torch.set_num_threads(2)
    sources = open_sources(["easy"])
    tasks = reading(sources, STEPS * BATCH)
    held_out = {task.question for task in heldout_tasks(sources, 500)}
    assert not held_out & {task.question for task in tasks}
    tokenizer = make_tokenizer(tasks[:10_000])
    network = make_network(len(tokenizer))
    model = Model("tiny", network, tokenizer, "", (1,), 0, 1024)
    train(model, tasks)
    network.eval()
    save_model(model, folder)
    again = load_model(str(folder))
    reward, informative = start_of(again, sources)
    result = evaluate(HFPolicy(again, 1.0, 16), sources, Uncaged(), tasks=700, completions=4, seed=SEED)
    seconds = time.monotonic() - start
    card = CARD.format(
        weights=again.weights, vocabulary=VOCABULARY, seconds=seconds, rate=FORMAT_RATE, reward=reward
    )
    (folder / "README.md").write_text(card, encoding="utf-8")
    print(f"{again.weights:,} weights in {folder}, {seconds:.0f} s")
    print(f"right: {reward:.3%} of completions, {informative:.2%} of groups informative")
    print(
        f"held-out: {result.reward:.3%}", {name: f"{value:.2%}" for name, value in result.by_source.items()}
    )


if __name__ == "__main__":
    main()
