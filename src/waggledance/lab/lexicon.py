"""A lexicon: the tokens of texts and the texts of tokens, remembered.

The same prompts and answers come back by the thousand in a lab, from all nodes alike; a tokenizer is asked
once for each. The memory is bounded: when it is full it starts anew.
"""

# pyright: standard

from typing import Any

from waggledance.model import Model
from waggledance.rollout import Rollout
from waggledance.task import SourceName, Task

LIMIT_ENTRIES = 500_000


class Lexicon:
    def __init__(self, model: Model) -> None:
        self._model = model
        self._prompts: dict[tuple[SourceName, int], list[int]] = {}
        self._ids: dict[tuple[str, bool], list[int]] = {}
        self._texts: dict[tuple[int, ...], str] = {}

    def prompt(self, task: Task) -> list[int]:
        key = task.source, task.index
        if key not in self._prompts:
            self._prompts[key] = self._model.prompt_ids(task)
        return self._prompts[key]

    def ids(self, rollout: Rollout) -> list[int]:
        """A rollout in this model's tokens: the ones that were drawn, where they are known."""
        if rollout.token_ids:
            return list(rollout.token_ids)
        key = rollout.text, rollout.finished
        if key not in self._ids:
            _bound(self._ids)
            self._ids[key] = self._model.text_ids(rollout.text, finished=rollout.finished)
        return self._ids[key]

    def text(self, ids: tuple[int, ...]) -> str:
        if ids not in self._texts:
            _bound(self._texts)
            self._texts[ids] = self._model.text(ids)
        return self._texts[ids]


def _bound(memory: dict[Any, Any]) -> None:
    if len(memory) >= LIMIT_ENTRIES:
        memory.clear()
