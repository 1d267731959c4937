"""The reference round with Waggledance: the policy and the learner that a node is made of, nothing else."""

# pyright: standard

from dataclasses import replace

from turn import COMPLETIONS, TOKENS, WARM_TOKENS, Message, read_turn, reward_of, tell, timed

from waggledance.cli.assemble import learner_of
from waggledance.config import check_config
from waggledance.model import load_model
from waggledance.policy.hf import HFPolicy
from waggledance.rollout import Author, Group, ScoredGroup
from waggledance.task import Digest, SourceName, Task


def main() -> None:
    turn = read_turn()
    system = turn.prompts[0][0]["content"]
    assert all(chat[0]["content"] == system for chat in turn.prompts)
    loaded = load_model(turn.folder, system_prompt=system)
    model = replace(loaded, end_ids=(-1,))  # no token ends a completion: all are of the same length
    learning = {"learning_rate": 1e-6, "clip_low": 0.2, "clip_high": 0.28}
    learner = learner_of(check_config({"policy": {"max_tokens": TOKENS}, "learner": learning}), model)
    drawn = 0

    def play(prompts: list[list[Message]], tokens: int, seed: int) -> None:
        nonlocal drawn
        tasks = [
            Task(SourceName("bench"), place, chat[1]["content"], "exact", "")
            for place, chat in enumerate(prompts)
        ]
        answers = HFPolicy(model, 1.0, tokens).generate(tasks, COMPLETIONS, seed)
        drawn = sum(rollout.tokens for rollouts in answers for rollout in rollouts)
        assert drawn == len(prompts) * COMPLETIONS * tokens, drawn
        rewards = tuple(reward_of(place) for place in range(COMPLETIONS))
        groups = [
            Group(Author("bench"), 1, task.source, Digest("-"), task.index, rollouts)
            for task, rollouts in zip(tasks, answers, strict=True)
        ]
        lesson = learner.learn(
            [ScoredGroup(group, task, rewards) for group, task in zip(groups, tasks, strict=True)]
        )
        assert lesson.tokens == drawn

    play(turn.prompts[:1], WARM_TOKENS, 0)
    rounds = [timed(lambda: play(turn.prompts, TOKENS, 1)) for _ in range(turn.rounds)]
    tasks = [Task(SourceName("bench"), 0, chat[1]["content"], "exact", "") for chat in turn.prompts]
    tell("waggledance", rounds, sum(len(model.prompt_ids(task)) for task in tasks), drawn, [])


if __name__ == "__main__":
    main()
