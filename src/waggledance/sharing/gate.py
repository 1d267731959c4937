"""The gate: which foreign groups may teach this node.

A verifier says that an answer is right; it does not see what else the text teaches. What a group would push
up must be likely enough here, no longer than needed, and free of its author's habits; no author and not the
others together may fill a batch. Scored groups come in, one at a time, and those that pass go on. What
credits nothing teaches nothing and passes unread.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from waggledance.rollout import Author, Rollout, ScoredGroup
from waggledance.seams import Reader
from waggledance.sharing.habit import Habits
from waggledance.sharing.length import Lengths
from waggledance.sharing.likelihood import Likelihood

STRANGE, LONG, HABIT = "strange", "long", "habit"
"""Why a group is refused: unlikely under one's own model, needlessly long, or a habit of its author's."""
CALIBRATE_GROUPS = 1
"""So many own groups are read in a round in which foreign ones are judged; the first time all."""
JUDGED_GROUPS = 16
"""So many foreign groups a round are judged: bounds what reading can cost, whoever floods."""
FAIR_SHARE_FACTOR = 2
"""An author may bring so many times what it would if all who have something here brought together as much
as the node itself does."""


class Gate(Protocol):
    refused: Counter[tuple[Author, str]]
    """So far, by author and reason."""

    def admitted(
        self, own: Sequence[ScoredGroup], foreign: Iterator[ScoredGroup], authors: int
    ) -> Iterator[ScoredGroup]:
        """Those of this round's foreign groups that may be trained on beside the own ones, where so many
        authors have some waiting."""
        ...

    def left_over(self) -> list[ScoredGroup]:
        """What is well as it is but would have filled the batch too much; it may come again."""
        ...


class OpenGate:
    """Lets in whatever was scored: for swarms whose members trust each other."""

    def __init__(self) -> None:
        self.refused: Counter[tuple[Author, str]] = Counter()

    def admitted(
        self, own: Sequence[ScoredGroup], foreign: Iterator[ScoredGroup], authors: int
    ) -> Iterator[ScoredGroup]:
        del own, authors
        return foreign

    def left_over(self) -> list[ScoredGroup]:
        return []


class GuardedGate:
    def __init__(self, reader: Reader | None, foreign_share: float) -> None:
        """Others may make up this share of a batch at most. Without a reader, where nobody has weights,
        likelihood is not looked at."""
        assert 0 <= foreign_share < 1
        self.refused: Counter[tuple[Author, str]] = Counter()
        self._reader = reader
        self._foreign_share = foreign_share
        self._likelihood = Likelihood()
        self._lengths = Lengths()
        self._habits = Habits()
        self._left_over: list[ScoredGroup] = []

    def admitted(
        self, own: Sequence[ScoredGroup], foreign: Iterator[ScoredGroup], authors: int
    ) -> Iterator[ScoredGroup]:
        self._note_own(own)
        self._left_over = []
        room = _Room(len(own), authors, self._foreign_share)
        judged = 0
        unread = list(own if not len(self._likelihood) else own[:CALIBRATE_GROUPS])
        for scored in foreign:
            shows_habit = self._habits.is_habit(scored.group)
            if not scored.informative:
                yield scored
            elif judged >= JUDGED_GROUPS or not room.has(scored.group.author):
                self._left_over.append(scored)
            else:
                judged += 1
                self._calibrate(unread)
                unread.clear()
                reason = self._why_not(scored, shows_habit=shows_habit)
                if reason is None:
                    room.take(scored.group.author)
                    yield scored
                else:
                    self.refused[scored.group.author, reason] += 1

    def left_over(self) -> list[ScoredGroup]:
        return self._left_over

    def _note_own(self, own: Sequence[ScoredGroup]) -> None:
        for scored in own:
            self._habits.add_own(scored.group)
            for rollout in scored.group.rollouts:
                self._lengths.add_own(scored.group.source, rollout.text)

    def _calibrate(self, own: Sequence[ScoredGroup]) -> None:
        """Reading costs a pass through the model: so only in rounds in which something is judged."""
        if self._reader is None:
            return
        for lines in self._reader.logprobs([scored.task for scored in own], [scored.group for scored in own]):
            self._likelihood.add_own(lines)

    def _why_not(self, scored: ScoredGroup, *, shows_habit: bool) -> str | None:
        pushed_up = pushed_up_of(scored)
        if any(self._lengths.is_too_long(scored.group.source, rollout.text) for rollout in pushed_up):
            return LONG
        if self._reader is None:
            return HABIT if shows_habit else None
        [lines] = self._reader.logprobs([scored.task], [replace(scored.group, rollouts=pushed_up)])
        if any(map(self._likelihood.is_strange, lines)):
            return STRANGE
        # What this node might well write itself teaches it no habit.
        return HABIT if shows_habit and not all(map(self._likelihood.is_usual, lines)) else None


class _Room:
    """What may still come from others in this round."""

    def __init__(self, own: int, authors: int, foreign_share: float) -> None:
        self._most = round(own * foreign_share / (1 - foreign_share))
        self._most_of_one = max(1, -(-FAIR_SHARE_FACTOR * own // max(1, authors)))
        self._brought: Counter[Author] = Counter()

    def has(self, author: Author) -> bool:
        return self._brought.total() < self._most and self._brought[author] < self._most_of_one

    def take(self, author: Author) -> None:
        self._brought[author] += 1


def pushed_up_of(scored: ScoredGroup) -> tuple[Rollout, ...]:
    """The rollouts that a learner makes likelier: those paid above the group's mean."""
    mean = sum(scored.rewards) / len(scored.rewards)
    pairs = zip(scored.group.rollouts, scored.rewards, strict=True)
    return tuple(rollout for rollout, reward in pairs if reward > mean)
