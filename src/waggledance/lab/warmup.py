"""Warm-up: lessons before the first round, so that a node starts better, or a specialist, or a novice.

A model and tasks come in; a copy of the model goes out that has read right answers to them. The same lessons
give the same model; what is held out is never read.
"""

# pyright: standard

import copy
import random
from collections.abc import Sequence
from dataclasses import replace

import torch

from waggledance.lab.plan import WarmUp
from waggledance.model import Model
from waggledance.task import Task
from waggledance.verify import right_answer

BATCH = 32
PLAIN, TAGGED = "The answer is {}.", "<answer>{}</answer>"
_SEED = 7


def warmed_up(model: Model, tasks: Sequence[Task], lessons: WarmUp) -> Model:
    draw = random.Random(_SEED)
    network = copy.deepcopy(model.network)
    weights = list(network.parameters())
    optimiser = torch.optim.Adam(weights, lr=lessons.learning_rate, betas=(0.9, 0.95))
    for _ in range(lessons.steps):
        ids, labels = _padded(model, draw.choices(tasks, k=BATCH), lessons.tagged, draw)
        # Padding stands behind all that is learned, and no token sees what stands behind it.
        loss = network(input_ids=ids, attention_mask=torch.ones_like(ids), labels=labels).loss
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimiser.step()
    return replace(model, network=network)


def _padded(
    model: Model, tasks: Sequence[Task], tagged: float, draw: random.Random
) -> tuple[torch.Tensor, torch.Tensor]:
    """Questions with their answers; only the answers are learned."""
    rows: list[tuple[list[int], list[int]]] = []
    for task in tasks:
        form = TAGGED if draw.random() < tagged else PLAIN
        answer = form.format(right_answer(task.rule, task.truth))
        rows.append((model.prompt_ids(task), model.text_ids(answer, finished=True)))
    width = max(len(prompt) + len(answer) for prompt, answer in rows)
    spare = [width - len(prompt) - len(answer) for prompt, answer in rows]
    ids = [
        [*prompt, *answer, *[model.pad_id] * left] for (prompt, answer), left in zip(rows, spare, strict=True)
    ]
    labels = [
        [-100] * len(prompt) + answer + [-100] * left
        for (prompt, answer), left in zip(rows, spare, strict=True)
    ]
    return torch.tensor(ids, device=model.device), torch.tensor(labels, device=model.device)
