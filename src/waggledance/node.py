"""A node and its round: six verbs, in this order, and nothing else.

A node answers its own tasks, verifies, shares, samples what others shared, and learns. It waits for nobody:
publishing never blocks, sampling takes what is there, and a node alone is plain RL, number for number.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from waggledance.draw import drawn_index
from waggledance.errors import TaskError
from waggledance.events import Event, Generated, Learned, Sampled, Shared, Verified
from waggledance.journal import Journal
from waggledance.lasting import Record
from waggledance.quote import any_said, best_said
from waggledance.rollout import (
    CARRIED_LIMIT_CHARACTERS,
    Author,
    Carried,
    Group,
    Rollout,
    ScoredGroup,
    key_of,
    mean_reward,
    name_of,
)
from waggledance.seams import Failure, Lasting, Learner, Mix, Policy, Source, Swarm, Traffic, Verifier
from waggledance.seed import derive
from waggledance.sharing.appetite import Appetite, Portion
from waggledance.sharing.gate import Gate, OpenGate
from waggledance.sharing.ledger import Ledger, credit_of
from waggledance.sharing.pool import Pool
from waggledance.sharing.share import to_share
from waggledance.task import SourceName, Task

CAGE = "cage"
"""The reason of a group that broke or held up whatever judged it."""
Stopwatch = Callable[[], float]


@dataclass(frozen=True, slots=True)
class NodeSettings:
    author: Author
    seed: int
    completions: int
    """Rollouts a group."""
    share: str
    verify_limit_groups: int
    """The most foreign groups verified in one round: bounds what a flood can cost."""
    verify_limit_s: float = 1.0
    """So long foreign groups are verified in one round; what was begun then is the last."""
    key: str = ""
    """Whose draws it makes: the fingerprint of a key. Empty: of the author's own, where it has one."""
    carries: frozenset[SourceName] = frozenset()
    """Sources whose tasks travel with their groups."""
    rules: frozenset[str] = frozenset()
    """By which carried truth may be judged here. None: only what this node builds itself is trained on."""
    prefer_useful: bool = False
    """Whether those whose groups taught most are sampled first; if not, all groups are equally likely."""


BLAMELESS = frozenset({"replay", "grant", "expired"})
"""Refusals that anyone can bring upon an author by sending its messages again."""


class Node:
    def __init__(
        self,
        settings: NodeSettings,
        *,
        sources: Sequence[Source],
        policy: Policy,
        learner: Learner,
        mix: Mix,
        pool: Pool,
        swarm: Swarm,
        verifier: Verifier,
        journal: Journal,
        gate: Gate | None = None,
        ledger: Ledger | None = None,
        stopwatch: Stopwatch = time.perf_counter,
    ) -> None:
        self.settings = settings
        self.policy = policy
        self.round_number = 0
        self._sources = tuple(sources)
        self._source_by_name = {source.name: source for source in sources}
        self._learner = learner
        self._mix = mix
        self._pool = pool
        self._swarm = swarm
        self._verifier = verifier
        self._gate = gate or OpenGate()
        self.ledger = ledger or Ledger()
        self.journal = journal
        self._stopwatch = stopwatch
        self._appetite = Appetite(settings.verify_limit_groups)
        parts = {"appetite": self._appetite, "mix": mix}
        self._small: dict[str, Lasting] = {
            name: part for name, part in parts.items() if isinstance(part, Lasting)
        }
        self._heard: list[Group] = []
        self._batch: list[ScoredGroup] = []
        self._refused: Counter[tuple[Author | None, str]] = Counter()
        self._refused_told: Counter[tuple[Author | None, str]] = Counter()
        self._bytes_told = 0
        self._dropped_told = 0

    @property
    def sources(self) -> tuple[Source, ...]:
        return self._sources

    def round(self) -> None:
        tasks = self.draw()
        tried = self.generate(tasks)
        own = self.verify(tasks, tried)
        self.share(own)
        batch = self.sample(own)
        self.learn(batch)

    def draw(self) -> list[Task]:
        """This round's tasks."""
        self.round_number += 1
        self.journal.round = self.round_number
        tasks: list[Task] = []
        for k in range(self._mix.own_groups):
            source = self._sources[self._derive("source", k) % len(self._sources)]
            tasks.append(source.task(self._index(source, k)))
        return tasks

    def _index(self, source: Source, place: int) -> int:
        key = self.settings.key or key_of(self.settings.author)
        if key:
            return drawn_index(key, self.round_number, place, source.name, source.size)
        return self._derive("index", place) % source.size

    def generate(self, tasks: Sequence[Task]) -> list[Group]:
        start = self._stopwatch()
        answers = self.policy.generate(tasks, self.settings.completions, self._derive("generate"))
        groups = [
            self._group(task, rollouts, place)
            for place, (task, rollouts) in enumerate(zip(tasks, answers, strict=True))
        ]
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        tokens = sum(rollout.tokens for rollout in rollouts)
        self._tell(Generated(len(groups), len(rollouts), tokens, self._stopwatch() - start))
        return groups

    def verify(self, tasks: Sequence[Task], groups: Sequence[Group]) -> list[ScoredGroup]:
        start = self._stopwatch()
        judged = self._judged(list(zip(tasks, groups, strict=True)))
        own = [
            scored or _unpaid(task, group) for scored, task, group in zip(judged, tasks, groups, strict=True)
        ]
        informative = sum(scored.informative for scored in own)
        self._tell(Verified(mean_reward(own), informative, self._stopwatch() - start, _by_source(own)))
        for said in (*best_said(own), *any_said(own, random.Random(self._derive("say")))):
            self._tell(said)
        return own

    def share(self, own: Sequence[ScoredGroup]) -> None:
        groups = to_share(own, self.settings.share)
        for group in groups:
            self._swarm.publish(group)
        # Sending goes on behind the round: what has not left yet is told in the next.
        before, self._bytes_told = self._bytes_told, self._swarm.traffic().sent_bytes
        self._tell(Shared(len(groups), self._bytes_told - before))

    def sample(self, own: Sequence[ScoredGroup]) -> list[ScoredGroup]:
        heard = self._swarm.drain(self._appetite.wanted)
        self._pool.add(heard, self.round_number)
        self._heard = heard
        self.ledger.heard((group.author for group in heard), self.round_number)
        batch = self._mixed(own)
        foreign = [scored for scored in batch if scored.group.author != self.settings.author]
        self._tell_sampled(len(batch) - len(foreign), foreign, heard)
        for said in any_said(foreign, random.Random(self._derive("hear"))):
            self._tell(said)
        return batch

    def learn(self, batch: Sequence[ScoredGroup]) -> None:
        self._batch = list(batch)
        start = self._stopwatch()
        lesson = self._learner.learn(batch)
        self._tell(
            Learned(
                reward=mean_reward(batch),
                groups=lesson.groups,
                tokens=lesson.tokens,
                loss=lesson.loss,
                grad_norm=lesson.grad_norm,
                kl=lesson.kl,
                clipped=lesson.clipped,
                seconds=self._stopwatch() - start,
                value_loss=lesson.value_loss,
                skipped=lesson.skipped,
            )
        )

    def kept(self) -> dict[str, bytes]:
        """What a restart must not lose, besides what the learner knows."""
        return {"pool": self._pool.kept(), **self._small_kept()}

    def restore(self, round_number: int, kept: Mapping[str, bytes]) -> None:
        self.round_number = self.journal.round = round_number
        if "pool" in kept:
            self._pool.restore(kept["pool"])
        self._restore_small(kept)

    def record(self) -> Record:
        """The round just done."""
        heard, batch = tuple(self._heard), tuple(self._batch)
        return Record(self.round_number, batch, heard, self._pool.marks, self._small_kept())

    def replay(self, record: Record) -> None:
        """A round done before a restart, learned again: nothing is generated, heard, verified or told."""
        self.round_number = self.journal.round = record.round
        self._pool.add(record.heard, record.round)
        self._pool.keep_only(record.waiting)
        self._restore_small(record.parts)
        self._learner.learn(record.batch)

    def _small_kept(self) -> dict[str, bytes]:
        return {name: part.kept() for name, part in self._small.items()}

    def _restore_small(self, kept: Mapping[str, bytes]) -> None:
        for name, part in self._small.items():
            if name in kept:
                part.restore(kept[name])

    def _scored(self, groups: Iterable[Group]) -> Iterator[ScoredGroup]:
        """Foreign groups, their tasks built and their rollouts verified here, one at a time, until the round
        has spent on them what it may."""
        spent_s = 0.0
        for group in groups:
            start = self._stopwatch()
            task = self._task_named_by(group)
            scored = self._judged([(task, group)])[0] if task is not None else None
            spent_s += self._stopwatch() - start
            if scored is not None:
                yield scored
            if spent_s >= self.settings.verify_limit_s:
                return

    def _mixed(self, own: Sequence[ScoredGroup]) -> list[ScoredGroup]:
        """Own groups and foreign ones that were drawn, verified and let through the gate, as the mix says."""
        draw, limit = random.Random(self._derive("sample")), self.settings.verify_limit_groups
        authors = len(self._pool.authors)
        portion = Portion(self._pool, draw, limit, self._weights())
        foreign = self._looked_at(self._scored(portion))
        batch = self._mix.choose(own, self._gate.admitted(own, foreign, authors))
        for scored in self._gate.left_over():
            self._pool.put_back(scored.group, self.round_number)
        self._appetite.note(portion)
        return batch

    def _weights(self) -> dict[Author, float] | None:
        if not self.settings.prefer_useful:
            return None
        return self.ledger.weights(self._pool.authors, self._swarm.grants())

    def _looked_at(self, groups: Iterable[ScoredGroup]) -> Iterator[ScoredGroup]:
        for scored in groups:
            self.ledger.looked(scored.group.author, self.round_number)
            yield scored

    def _task_named_by(self, group: Group) -> Task | None:
        """None, and counted by its reason, where this node cannot use the group."""
        source = self._source_by_name.get(group.source)
        if source is None or group.digest != source.digest:
            found = self._carried_by(group, "digest" if source else "source")
        else:
            found = _built(source, group)
        if isinstance(found, Task):
            return found
        self._refused[group.author, found] += 1
        return None

    def _carried_by(self, group: Group, reason: str) -> Task | str:
        """The task that travelled with its group, where this node judges carried truth at all."""
        said = group.carried
        if said is None or not self.settings.rules:
            return reason
        if said.rule not in self.settings.rules:
            return "rule"
        return Task(group.source, group.index, said.question, said.rule, said.truth)

    def _judged(self, tried: Sequence[tuple[Task, Group]]) -> list[ScoredGroup | None]:
        """None, and counted, where an answer broke or held up whatever judged it."""
        pairs = [(task, [rollout.text for rollout in group.rollouts]) for task, group in tried]
        judged: list[ScoredGroup | None] = []
        for (task, group), verdict in zip(tried, self._verifier.verify(pairs), strict=True):
            if not isinstance(verdict, Failure):
                judged.append(ScoredGroup(group, task, verdict))
                continue
            if verdict is not Failure.UNTRIED:
                self._refused[group.author, CAGE] += 1
            judged.append(None)
        return judged

    def _group(self, task: Task, rollouts: tuple[Rollout, ...], place: int) -> Group:
        return Group(
            self.settings.author,
            self.round_number,
            task.source,
            self._source_by_name[task.source].digest,
            task.index,
            rollouts,
            place,
            _carried(task) if task.source in self.settings.carries else None,
        )

    def _tell_sampled(self, own: int, foreign: Sequence[ScoredGroup], heard: Sequence[Group]) -> None:
        for event in self._swarm.news():
            self._tell(event)
        traffic = self._swarm.traffic()
        refused = self._newly_refused(traffic)
        self._enter(foreign, refused)
        dropped = traffic.dropped + self._pool.dropped
        newly_dropped, self._dropped_told = dropped - self._dropped_told, dropped
        self._tell(
            Sampled(
                own=own,
                foreign=len(foreign),
                by_author=dict(Counter(str(scored.group.author) for scored in foreign)),
                given=dict(Counter(str(group.author) for group in heard)),
                useful=_credit_by_author(foreign),
                pool=len(self._pool),
                peers=len(self._swarm.peers()),
                refused=_by_reason(refused),
                refused_of=_by_author(refused),
                heard=len(heard),
                dropped=newly_dropped,
                listening=traffic.listening,
            )
        )

    def _newly_refused(self, traffic: Traffic) -> Counter[tuple[Author | None, str]]:
        """By the wire, by this node and by its gate, since it was last told."""
        total = self._refused + self._gate.refused + Counter(traffic.refused)
        new, self._refused_told = total - self._refused_told, total
        return new

    def _enter(self, taken: Sequence[ScoredGroup], refused: Counter[tuple[Author | None, str]]) -> None:
        """What came of it, into the ledger."""
        for scored in taken:
            self.ledger.took(scored, self.round_number)
        for (author, reason), count in refused.items():
            if author is not None and reason not in BLAMELESS:
                self.ledger.refused(author, reason, count, self.round_number)

    def _derive(self, *words: str | int) -> int:
        # By name: a key is drawn at random, and the same seed shall make the same draws.
        return derive(self.settings.seed, name_of(self.settings.author), self.round_number, *words)

    def _tell(self, event: Event) -> None:
        self.journal.tell(event)


def _by_source(own: Sequence[ScoredGroup]) -> dict[str, float]:
    """The mean own reward of each task source that was drawn."""
    sources = {scored.task.source for scored in own}
    return {
        source: mean_reward([scored for scored in own if scored.task.source == source])
        for source in sorted(sources)
    }


def _built(source: Source, group: Group) -> Task | str:
    """The task as this node makes it, or why it cannot be used."""
    # Held-out tasks lie at size and above: nobody may train this node on them.
    if group.index >= source.size:
        return "index"
    key = key_of(group.author)
    if key and group.index != drawn_index(key, group.round, group.place, source.name, source.size):
        return "pick"
    try:
        return source.task(group.index)
    except TaskError:  # where an index leads must not end this node
        return "task"


def _carried(task: Task) -> Carried | None:
    short = max(len(task.question), len(task.truth)) <= CARRIED_LIMIT_CHARACTERS
    return Carried(task.question, task.rule, task.truth) if short and not task.partial else None


def _unpaid(task: Task, group: Group) -> ScoredGroup:
    """One's own group that nothing could judge: it earns nothing and teaches nothing."""
    return ScoredGroup(group, task, (0.0,) * len(group.rollouts))


def _credit_by_author(groups: Iterable[ScoredGroup]) -> dict[str, float]:
    credit: dict[str, float] = {}
    for scored in groups:
        author = str(scored.group.author)
        credit[author] = credit.get(author, 0.0) + credit_of(scored)
    return credit


def _by_reason(refused: Counter[tuple[Author | None, str]]) -> dict[str, int]:
    reasons: Counter[str] = Counter()
    for (_, reason), count in refused.items():
        reasons[reason] += count
    return dict(reasons)


def _by_author(refused: Counter[tuple[Author | None, str]]) -> dict[str, dict[str, int]]:
    authors: dict[str, dict[str, int]] = {}
    for (author, reason), count in refused.items():
        if author is not None:
            authors.setdefault(author, {})[reason] = count
    return authors
