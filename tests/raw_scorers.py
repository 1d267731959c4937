"""A warden whose workers hand answers to ReasoningGYM's scorers as they are, those too that run them.

`python -m raw_scorers` with the names of datasets. What it shows is what the cage holds back by itself, with
no rule and no cap of ours in front.
"""

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from reasoning_gym import factory  # pyright: ignore

from waggledance.task import Task
from waggledance.tasks.recipes import SEED
from waggledance.verify.fence import leave_the_network
from waggledance.verify.warden import keep

ITEMS = 2


def judge(entries: dict[str, tuple[Any, list[Any]]], task: Task, texts: Sequence[str]) -> tuple[float, ...]:
    dataset, items = entries[task.source]
    return tuple(_scored(dataset, text, items[task.index]) for text in texts)


def _scored(dataset: Any, text: str, entry: Any) -> float:
    try:
        return float(dataset.score_answer(text, entry) >= 1)
    except (ArithmeticError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError):
        return 0.0


def main(arguments: Sequence[str]) -> None:
    network = leave_the_network()
    entries: dict[str, tuple[Any, list[Any]]] = {}
    for name in arguments[3:]:
        dataset: Any = factory.create_dataset(name, seed=SEED)  # pyright: ignore
        items = [dataset[index] for index in range(ITEMS)]
        for item in items:
            _scored(dataset, str(item["answer"]), item)
        entries[name] = (dataset, items)
    keep(partial(judge, entries), arguments, network=network)


if __name__ == "__main__":
    main(sys.argv[1:])
