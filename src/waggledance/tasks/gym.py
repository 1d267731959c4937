"""ReasoningGYM as a source: a recipe's tasks, by index."""

from waggledance.task import Digest, SourceName, Task
from waggledance.tasks.item import Maker
from waggledance.tasks.recipes import RECIPES, SEED
from waggledance.tasks.split import SIZE, canonical_digest


class Gym:
    size = SIZE

    def __init__(self, recipe: str, maker: Maker) -> None:
        self.name = SourceName(recipe)
        self._recipe = RECIPES[recipe]
        self._maker = maker
        self._digest: Digest | None = None

    @property
    def digest(self) -> Digest:
        if self._digest is None:
            made_from = (self._recipe.dataset, SEED, self._recipe.parameters)
            self._digest = canonical_digest(self.task, self.size, made_from)
        return self._digest

    def task(self, index: int) -> Task:
        item = self._maker.make(self.name, index)
        return Task(self.name, index, item.question, self._recipe.rule, item.truth)
