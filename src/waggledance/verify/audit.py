"""The audit: whether a task source can be trusted with a reward.

A source fails that differs from one process to the next, holds up whoever asks it, breaks its judge, or pays
full marks for answers that anybody could write without reading the question. It is asked for a few tasks from
both sides of the split, each answered with the same trivial answers.
"""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from waggledance.errors import TaskError
from waggledance.seams import Failure, Source, Verifier
from waggledance.task import Digest, SourceName, Task
from waggledance.verify.number import parse_number
from waggledance.verify.rules import RULES, right_answer

TASKS_TRAINED, TASKS_HELD_OUT = 18, 6
SLOW_MS = 2000.0
"""A round may lose as much to a single task, and no more."""
RUBBISH_SHARE, RULE_SHARE = 0.1, 0.5
"""Of the tasks: no more may pay an answer that is not the one they name. Where a rule of our own judges,
several may be right; a scorer is not believed so easily."""
TRIVIAL = (
    *("", " ", "0", "1", "-1", "2", "10", "0.5", "nan", "inf", "1e9", "True", "False", "None", "null", "yes"),
    *("no", "a", "A", "x", "C", "P", ".", "?", "[]", "{}", "[[]]", "()", "''", '""', "0 0", "0, 0", "a, b"),
    *("x = 0", "up", "R", "answer", "I do not know", "the answer", "\n", "1/2", "0x0", "{}\n{}", "[0]"),
)


class Finding(msgspec.Struct, frozen=True):
    name: SourceName
    digest: Digest
    ok: bool
    reason: str
    """Empty for a source that may be used."""
    worst_ms: float
    """The longest that it took to make a task or to verify its answers."""


class Findings(msgspec.Struct, frozen=True):
    sources: tuple[Finding, ...]


@dataclass(slots=True)
class _Trial:
    """What has come out so far."""

    source: Source
    verifier: Verifier
    stopwatch: Callable[[], float]
    worst_ms: float = 0.0

    def run(self) -> str:
        """Why the source fails; nothing if it does not."""
        paid: Counter[str] = Counter()
        share = RUBBISH_SHARE
        for index in _indices(self.source.size):
            task = self.task(index)
            if task is None:
                return f"cannot make task {index}"
            rewards = self.rewards(task)
            if isinstance(rewards, Failure):
                return f"its judge {_WORDS[rewards]} at a trivial answer"
            pairs = zip(TRIVIAL, rewards, strict=True)
            paid.update(said for said, reward in pairs if reward > 0 and not _says_the_truth(said, task))
            share = RULE_SHARE if task.rule in RULES else RUBBISH_SHARE
        if self.worst_ms > SLOW_MS:
            return f"takes {self.worst_ms / 1000:.1f} s over one task"
        for said, tasks in paid.most_common(1):
            if tasks > share * (TASKS_TRAINED + TASKS_HELD_OUT):
                return f"pays for {said!r} where it is not the answer"
        return ""

    def task(self, index: int) -> Task | None:
        start = self.stopwatch()
        try:
            return self.source.task(index)
        except TaskError:
            return None
        finally:
            self._note(start)

    def rewards(self, task: Task) -> tuple[float, ...] | Failure:
        start = self.stopwatch()
        [verdict] = self.verifier.verify([(task, [f"<answer>{said}</answer>" for said in TRIVIAL])])
        self._note(start)
        return verdict

    def _note(self, start: float) -> None:
        self.worst_ms = max(self.worst_ms, 1000 * (self.stopwatch() - start))


_WORDS = {
    Failure.TIMED_OUT: "hangs",
    Failure.KILLED: "dies",
    Failure.RAISED: "raises",
    Failure.UNTRIED: "was not reached",
}


def audit(
    source: Source, again: Source, verifier: Verifier, stopwatch: Callable[[], float] = time.perf_counter
) -> Finding:
    """`again` is the same source with another process to make its tasks."""
    trial = _Trial(source, verifier, stopwatch)
    digest, other = _digest(source), _digest(again)
    if digest and digest == other:
        reason = trial.run()
    else:
        reason = (
            "differs from one process to the next" if digest and other else "takes too long to make tasks"
        )
    return Finding(source.name, digest, not reason, reason, round(trial.worst_ms, 1))


def _digest(source: Source) -> Digest:
    """None of a source that cannot make its canonical tasks."""
    try:
        return source.digest
    except TaskError:
        return Digest("")


def _indices(size: int) -> list[int]:
    trained = [size * place // TASKS_TRAINED for place in range(TASKS_TRAINED)]
    return [*trained, *(size + place for place in range(TASKS_HELD_OUT))]


def _says_the_truth(said: str, task: Task) -> bool:
    right = right_answer(task.rule, task.truth)
    if RULES["word"](said, right, False) or said.split() == right.split():
        return True
    value = parse_number(said)
    return value is not None and value == parse_number(right)
