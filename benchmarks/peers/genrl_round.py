"""The reference round with gensyn-genrl's GRPO trainer, as fast as its settings allow.

Its own defaults but for: minibatches of eight (two by default, and slower; each is a step of its own), no
gradient checkpointing (on by default, and slower). Its trainer reads questions, answers and rewards from the
library's game tree; here they come from three lists, so that nothing but the trainer is measured.
"""

# pyright: standard, reportMissingImports=false, reportAttributeAccessIssue=false, reportArgumentType=false

import tempfile
from collections.abc import Iterator
from typing import Any

import torch
from genrl.trainer.grpo_trainer import GRPOLanguageTrainerModule, GRPOTrainerConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from turn import COMPLETIONS, TOKENS, WARM_TOKENS, Message, read_turn, reward_of, tell, timed

Chats = list[dict[str, list[Message]]]
AGENT, BATCH = 0, 0


class Played:
    """A stage that was played: what was asked and what was answered."""

    stage = 1

    def __init__(self, chats: Chats, answers: list[list[str]]) -> None:
        self.chats, self.answers = chats, answers

    def get_stage_state(self, stage: int) -> Chats:
        return self.chats

    def get_stage_actions(self, stage: int) -> dict[int, dict[int, list[list[str]]]]:
        return {AGENT: {BATCH: self.answers}}


class Mapping:
    """Every question in its order."""

    def prepare_input(self, chats: Chats, stage: int) -> tuple[Chats, dict[int, tuple[int, int, int]]]:
        return chats, {place: (AGENT, BATCH, place) for place in range(len(chats))}


class Rewards:
    def __init__(self, questions: int) -> None:
        self.rewards = [[reward_of(place) for place in range(COMPLETIONS)] for _ in range(questions)]

    def __getitem__(self, stage: int) -> dict[int, dict[int, list[list[float]]]]:
        return {AGENT: {BATCH: self.rewards}}


def main() -> None:
    turn = read_turn()
    model = AutoModelForCausalLM.from_pretrained(turn.folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(turn.folder, padding_side="left")
    config = GRPOTrainerConfig(
        max_new_tokens=TOKENS,
        num_generations=COMPLETIONS,
        minibatch_size=8,
        learning_rate=1e-6,
        enable_gradient_checkpointing=False,
    )
    drawn = 0
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOLanguageTrainerModule([model], config, processing_class=tokenizer, log_dir=folder)

        def play(prompts: list[list[Message]], tokens: int) -> None:
            nonlocal drawn
            trainer.generation_config.max_new_tokens = tokens
            trainer.generation_config.min_new_tokens = tokens
            chats: Chats = [{"prompt": chat} for chat in prompts]
            answers, ids = trainer.generate(chats, return_completion_ids=True)
            drawn = sum(len(one) for group in ids for one in group)
            assert drawn == len(prompts) * COMPLETIONS * tokens, drawn
            trainer.train(Played(chats, answers), Mapping(), Rewards(len(prompts)))

        play(turn.prompts[:1], WARM_TOKENS)
        rounds = [timed(lambda: play(turn.prompts, TOKENS)) for _ in range(turn.rounds)]
    length = sum(lengths(tokenizer, turn.prompts))
    tell("genrl", rounds, length, drawn, ["gensyn-genrl"])


def lengths(tokenizer: Any, prompts: list[list[Message]]) -> Iterator[int]:
    for chat in prompts:
        text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        yield len(tokenizer(text)["input_ids"])


if __name__ == "__main__":
    main()
