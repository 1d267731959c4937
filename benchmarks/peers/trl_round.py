"""The reference round with TRL's GRPOTrainer: one step over 64 completions, as fast as its settings allow.

Its own defaults but for: no gradient checkpointing (on by default, and slower), no logging, no saving, eight
micro-batches of eight (one of 64 needs more memory than this comparison allows anyone), the paper's clipping.
"""

# pyright: standard, reportMissingImports=false, reportAttributeAccessIssue=false, reportArgumentType=false

import tempfile

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from turn import COMPLETIONS, TOKENS, WARM_TOKENS, Clock, Message, Took, read_turn, reward_of, tell


class Steps(TrainerCallback):
    """A step, from before its completions are generated until its weights have moved."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.took: list[Took] = []

    def on_step_begin(self, *_: object, **__: object) -> None:
        self.clock.start()

    def on_step_end(self, *_: object, **__: object) -> None:
        self.took.append(self.clock.took())


class Counter:
    """Rewards, and how many tokens came."""

    __name__ = "half_are_right"

    def __init__(self) -> None:
        self.tokens = 0

    def __call__(self, completion_ids: list[list[int]], **_: object) -> list[float]:
        self.tokens = sum(map(len, completion_ids))
        return [reward_of(place) for place in range(len(completion_ids))]


def main() -> None:
    turn = read_turn()
    model = AutoModelForCausalLM.from_pretrained(turn.folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(turn.folder)
    train(model, tokenizer, turn.prompts[:1], WARM_TOKENS, 1)
    watched, counter = train(model, tokenizer, turn.prompts, TOKENS, turn.rounds)
    length = sum(
        len(tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True)["input_ids"])
        for chat in turn.prompts
    )
    tell("trl", watched.took, length, counter.tokens, ["trl"])


def train(
    model: object, tokenizer: object, prompts: list[list[Message]], tokens: int, steps: int
) -> tuple[Steps, Counter]:
    watched, counter = Steps(), Counter()
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder,
            use_cpu=True,
            bf16=False,
            max_steps=steps,
            per_device_train_batch_size=COMPLETIONS,
            gradient_accumulation_steps=len(prompts),
            num_generations=COMPLETIONS,
            max_completion_length=tokens,
            generation_kwargs={"min_new_tokens": tokens},
            temperature=1.0,
            learning_rate=1e-6,
            beta=0.0,
            epsilon=0.2,
            epsilon_high=0.28,
            loss_type="grpo",
            gradient_checkpointing=False,
            shuffle_dataset=False,
            report_to=[],
            logging_strategy="no",
            save_strategy="no",
            disable_tqdm=True,
        )
        rows = [{"prompt": chat} for _ in range(steps) for chat in prompts]
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=[counter],
            args=config,
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer,
            callbacks=[watched],
        )
        trainer.train()
    assert len(watched.took) == steps, watched.took
    assert counter.tokens == len(prompts) * COMPLETIONS * tokens, counter.tokens
    return watched, counter


if __name__ == "__main__":
    main()
