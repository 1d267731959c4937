"""A heat: trials that run together, all their nodes round by round in step.

The verbs are the node's own (`node.py`), called for every node before the next verb begins: within a round
all share before anyone samples, so no node is ahead of another. Who thinks for the nodes is handed in: each
by itself, or a stack for all of them (`thinkers.py`).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from waggledance.evaluate import evaluate, heldout_tasks
from waggledance.journal import Journal
from waggledance.lab.bank import Bank, BankSource, Remembering, names_of
from waggledance.lab.hub import Hub, Line
from waggledance.lab.plan import Seat, TrialPlan
from waggledance.lab.record import NodeRecord, TrialResult, result_of
from waggledance.lab.thinkers import Asked, Mind, Thinkers
from waggledance.node import Node, NodeSettings
from waggledance.rollout import Author, ScoredGroup
from waggledance.seams import Source, Verifier
from waggledance.seed import derive
from waggledance.sharing.mixes import open_mix
from waggledance.sharing.pool import Pool
from waggledance.sharing.share import NOTHING
from waggledance.task import SourceName, Task


@dataclass(frozen=True, slots=True)
class _Runner:
    """A node in its seat."""

    place: int
    """Which of the thinkers' nodes it is."""
    seat: Seat
    node: Node
    record: NodeRecord


@dataclass(frozen=True, slots=True)
class _Trial:
    plan: TrialPlan
    hub: Hub
    runners: list[_Runner]


class Heat:
    def __init__(self, plans: Sequence[TrialPlan], bank: Bank, thinkers: Thinkers) -> None:
        self._thinkers = thinkers
        self._trials: list[_Trial] = []
        places = iter(range(sum(len(plan.seats) for plan in plans)))
        sources: dict[SourceName, BankSource] = {}
        self._verifier = Remembering()
        for plan in plans:
            authors = [Author(seat.config.name) for seat in plan.seats]
            hub = Hub(authors, plan.hears, delay_rounds=plan.delay_rounds, lost=plan.lost, seed=plan.seed)
            runners: list[_Runner] = []
            for seat, author in zip(plan.seats, authors, strict=True):
                place = next(places)
                mind, found = thinkers.mind(place), _opened(bank, seat, sources)
                runners.append(_runner(place, seat, hub.line(author), found, mind, self._verifier))
            self._trials.append(_Trial(plan, hub, runners))
        self.rounds = max(plan.rounds for plan in plans)

    def run(self) -> Iterator[int]:
        """Yields after every round, its number; 0 once the start has been measured."""
        self._measure(0)
        yield 0
        for round_ in range(1, self.rounds + 1):
            for trial in self._trials:
                trial.hub.turn(round_)
            self._advance([r for r in self._runners if r.seat.works(round_)])
            self._measure(round_)
            yield round_

    def results(self) -> list[TrialResult]:
        return [
            result_of(
                trial.plan.configuration,
                trial.plan.seed,
                trial.plan.rounds,
                [runner.record for runner in trial.runners],
            )
            for trial in self._trials
        ]

    @property
    def _runners(self) -> list[_Runner]:
        return [runner for trial in self._trials for runner in trial.runners]

    def _advance(self, runners: Sequence[_Runner]) -> None:
        asked = [
            Asked(
                node=runner.place,
                tasks=runner.node.draw(),
                completions=runner.seat.config.policy.completions,
                seed=_seed(runner, runner.node.round_number, "generate"),
            )
            for runner in runners
        ]
        self._thinkers.answer(asked)
        own = [_own(runner.node, one.tasks) for runner, one in zip(runners, asked, strict=True)]
        batches = {r.place: r.node.sample(groups) for r, groups in zip(runners, own, strict=True)}
        self._thinkers.learn(batches)
        for runner in runners:
            runner.node.learn(batches[runner.place])
            _fold(runner)

    def _measure(self, round_: int) -> None:
        """Held-out reward, where its time has come: at the start, at the end and as often as is set."""
        due = [runner for runner in self._runners if _is_due(runner.seat, round_)]
        asked = [
            Asked(
                node=runner.place,
                tasks=heldout_tasks(runner.node.sources, runner.seat.config.evaluate.tasks),
                completions=runner.seat.config.evaluate.completions,
                seed=_heldout_seed(runner),
            )
            for runner in due
        ]
        self._thinkers.answer(asked)
        for runner in due:
            wanted = runner.seat.config.evaluate
            runner.node.journal.round = round_
            runner.node.journal.tell(
                evaluate(
                    runner.node.policy,
                    runner.node.sources,
                    self._verifier,
                    tasks=wanted.tasks,
                    completions=wanted.completions,
                    seed=_heldout_seed(runner),
                )
            )
            _fold(runner)


def _own(node: Node, tasks: Sequence[Task]) -> list[ScoredGroup]:
    tried = node.generate(tasks)
    own = node.verify(tasks, tried)
    node.share(own)
    return own


def _fold(runner: _Runner) -> None:
    """What was told goes into the record; a journal of thousands of rounds would fill the memory."""
    runner.record.fold(runner.node.journal.entries)
    runner.node.journal.entries.clear()


def _is_due(seat: Seat, round_: int) -> bool:
    every, rounds = seat.config.evaluate.every_rounds, seat.config.rounds
    return round_ in (0, rounds) or bool(every and round_ % every == 0 and round_ < rounds)


def _seed(runner: _Runner, round_: int, *words: str) -> int:
    """As the node derives it."""
    return derive(runner.seat.config.seed, runner.seat.config.name, round_, *words)


def _heldout_seed(runner: _Runner) -> int:
    return derive(runner.seat.config.seed, runner.seat.config.name, "heldout")


def _opened(bank: Bank, seat: Seat, opened: dict[SourceName, BankSource]) -> list[BankSource]:
    """Each source once, so that what one node verified is known to the others."""
    names = names_of(seat.config.tasks)
    for source in bank.named([name for name in names if name not in opened]):
        opened[source.name] = source
    return [opened[name] for name in names]


def _runner(
    place: int, seat: Seat, line: Line, sources: Sequence[Source], mind: Mind, verifier: Verifier
) -> _Runner:
    config = seat.config
    author = Author(config.name)
    node = Node(
        NodeSettings(
            author=author,
            seed=config.seed,
            completions=config.policy.completions,
            share=config.swarm.share if config.swarm.kind != "none" else NOTHING,
            verify_limit_groups=config.pool.verify_limit_groups,
            verify_limit_s=math.inf,  # results must not hang on how busy the machine is
        ),
        sources=sources,
        policy=mind.policy,
        learner=mind.learner,
        mix=open_mix(config.mix),
        pool=Pool(limit_groups=config.pool.limit_groups, max_age_rounds=config.pool.max_age_rounds),
        swarm=line,
        verifier=verifier,
        journal=Journal(author, lambda: 0.0),
        stopwatch=mind.stopwatch,
    )
    return _Runner(place, seat, node, NodeRecord())
