"""Opening sources by the words a user writes: `paper`, `easy:gcd`, `gym:dice`, `arithmetic`, `jsonl:PATH`."""

from collections.abc import Sequence
from pathlib import Path

from waggledance.errors import TaskError, nearest
from waggledance.seams import Source
from waggledance.tasks.arithmetic import Arithmetic
from waggledance.tasks.child import open_maker
from waggledance.tasks.gym import Gym
from waggledance.tasks.item import Maker
from waggledance.tasks.jsonl import Jsonl
from waggledance.tasks.recipes import EASY, PAPER, RECIPES, REFUSED

SETS = {
    "paper": tuple(f"paper:{name}" for name in PAPER),
    "easy": tuple(f"easy:{name}" for name in EASY),
}
FORMS = (*SETS, "arithmetic", "jsonl:PATH", "gym:NAME")


def open_sources(words: Sequence[str], maker: Maker | None = None) -> tuple[Source, ...]:
    """The sources that the words name, in their order; one that is named twice is opened once."""
    if not words:
        raise TaskError(f"no task source is named; name one or more of: {', '.join(FORMS)}")
    maker = maker or open_maker()  # shared, so that one child makes the items of all sources
    sources: dict[str, Source] = {}
    singles = [single for word in words for single in SETS.get(word, (word,))]
    for word in dict.fromkeys(singles):
        source = _open(word, maker)
        if source.name in sources:
            raise TaskError(f"{word}: there is a source {source.name} already; give one file another name")
        sources[source.name] = source
    return tuple(sources.values())


def _open(word: str, maker: Maker) -> Source:
    if word in RECIPES:
        return Gym(word, maker)
    if (reason := REFUSED.get(word.removeprefix("gym:"))) and word.startswith("gym:"):
        raise TaskError(f"{word} is refused: it {reason}")
    if word == Arithmetic.name:
        return Arithmetic()
    kind, _, path = word.partition(":")
    if kind == "jsonl" and path:
        return Jsonl(Path(path).expanduser())
    siblings = [name for name in RECIPES if name.startswith(f"{kind}:")]
    singles = [name for names in SETS.values() for name in names]
    raise TaskError(f"no task source is called {word!r}; {nearest(word, siblings or [*FORMS, *singles])}")
