"""A warden whose workers also judge by ReasoningGYM's own scorers. `python -m waggledance.tasks.judge`.

It is told which recipes need one, and makes and scores an item of each before it forks: whatever a dataset
imports or reads when it is first used is there before the fence closes.
"""

import sys
from collections.abc import Sequence
from functools import partial

from waggledance.seams import Source
from waggledance.task import Task
from waggledance.tasks.generator import Generator
from waggledance.tasks.recipes import RECIPES, SCORER
from waggledance.tasks.split import SIZE
from waggledance.verify import extract, verify
from waggledance.verify.fence import leave_the_network
from waggledance.verify.warden import keep

WARDEN = "waggledance.tasks.judge"


def scored(sources: Sequence[Source]) -> list[str]:
    """The names of those that ReasoningGYM's own scorers judge."""
    recipes = {source.name: RECIPES.get(source.name) for source in sources}
    return [name for name, recipe in recipes.items() if recipe is not None and recipe.rule == SCORER]


def judge(generator: Generator, task: Task, texts: Sequence[str]) -> tuple[float, ...]:
    if task.rule != SCORER:
        return verify(task, texts)
    return generator.score(task.source, task.index, [extract(text) for text in texts])


def main(arguments: Sequence[str]) -> None:
    network = leave_the_network()  # before numpy has threads
    generator = Generator()
    for recipe in arguments[3:]:
        for index in (0, SIZE):
            item = generator.make(recipe, index)
            generator.score(recipe, index, [item.truth, "0"])
    keep(partial(judge, generator), arguments, network=network)


if __name__ == "__main__":
    main(sys.argv[1:])
