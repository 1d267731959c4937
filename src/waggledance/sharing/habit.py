"""Habits: turns of phrase that one author repeats and nobody else writes.

A phrase is a few words in a row; numbers count as one word, so that an answer is no phrase of its own. What
an author writes in many of its groups, this node never, and hardly another author, is held back until others
write it too: a right answer is no reason to take on somebody's manner. Texts come in, hashes are kept.
"""

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator

from waggledance.rollout import Author, Group

PHRASE_WORDS = 3
WINDOW_GROUPS = 64
"""Of each author: what it wrote before that is forgotten."""
OWN_WINDOW_GROUPS = 512
REPEATED_GROUPS = 3
REPEATED_SHARE = 0.25
"""A phrase is repeated that stands in so many of an author's groups, and in such a share of them."""
COMMON_SHARE = 1 / 3
"""What more than this share of the other authors write is the swarm's language and nobody's habit."""
LIMIT_PHRASES = 2048
"""Of one group: what it says beyond is not looked at."""
LIMIT_AUTHORS = 256

_WORDS = re.compile(r"[^\W\d_]+|\d+|\S")


class _Told:
    """What one author's newest groups say: in how many of them each phrase stands."""

    def __init__(self, window_groups: int) -> None:
        self._window_groups = window_groups
        self._groups: deque[frozenset[int]] = deque()
        self.count: Counter[int] = Counter()

    def add(self, phrases: frozenset[int]) -> None:
        self._groups.append(phrases)
        self.count.update(phrases)
        if len(self._groups) > self._window_groups:
            gone = self._groups.popleft()
            self.count.subtract(gone)
            for phrase in gone:
                if self.count[phrase] <= 0:
                    del self.count[phrase]

    def repeats(self, phrase: int) -> bool:
        count = self.count[phrase]
        return count >= REPEATED_GROUPS and count >= REPEATED_SHARE * len(self._groups)


class Habits:
    def __init__(self) -> None:
        self._own = _Told(OWN_WINDOW_GROUPS)
        self._others: dict[Author, _Told] = {}

    def add_own(self, group: Group) -> None:
        self._own.add(phrases_of(group))

    def is_habit(self, group: Group) -> bool:
        """Takes the group in, and says whether it shows a habit of its author."""
        phrases = phrases_of(group)
        author = self._others.pop(group.author, None) or _Told(WINDOW_GROUPS)
        self._others[group.author] = author
        if len(self._others) > LIMIT_AUTHORS:
            del self._others[next(iter(self._others))]
        author.add(phrases)
        return any(self._is_alone(phrase, author) for phrase in phrases if author.repeats(phrase))

    def _is_alone(self, phrase: int, author: _Told) -> bool:
        if self._own.count[phrase]:
            return False
        others = [told for told in self._others.values() if told is not author]
        return sum(phrase in told.count for told in others) <= COMMON_SHARE * len(others)


def phrases_of(group: Group) -> frozenset[int]:
    found: dict[int, None] = {}
    for rollout in group.rollouts:
        for phrase in _phrases(rollout.text):
            found[phrase] = None
            if len(found) >= LIMIT_PHRASES:
                return frozenset(found)
    return frozenset(found)


def _phrases(text: str) -> Iterator[int]:
    words = list(_plain(_WORDS.findall(text)))
    return (hash(phrase) for phrase in zip(*(words[k:] for k in range(PHRASE_WORDS)), strict=False))


def _plain(words: Iterable[str]) -> Iterator[str]:
    return ("0" if word.isdigit() else word.lower() for word in words)
