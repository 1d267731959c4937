"""The round, over a swarm in memory."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import pytest

from swarm_run import advance, make_node
from waggledance.errors import TaskError
from waggledance.events import Generated, Learned, Sampled, Shared, Verified
from waggledance.node import Node
from waggledance.rollout import Author, Group, Rollout, ScoredGroup
from waggledance.seams import Lesson
from waggledance.sharing.fixed import Fixed
from waggledance.sharing.pool import Pool
from waggledance.swarm.memory import Faults, MemoryHub
from waggledance.swarm.wire import encode
from waggledance.task import Digest, SourceName, Task
from waggledance.tasks import Arithmetic

E = TypeVar("E")


def told(node: Node, kind: type[E]) -> list[E]:
    return [entry.event for entry in node.journal.entries if isinstance(entry.event, kind)]


def swarm(nodes: int, faults: Faults | None = None, *, seed: int = 1, success: float = 0.3) -> list[Node]:
    hub = MemoryHub(faults, seed=5)
    return [make_node(f"n{k}", hub, seed=seed, success=success) for k in range(nodes)]


def test_one_node_alone_is_plain_rl() -> None:
    [node] = swarm(1)
    advance([node], 5)
    assert [event.foreign for event in told(node, Sampled)] == [0] * 5
    assert [event.own for event in told(node, Sampled)] == [4] * 5
    assert [event.rollouts for event in told(node, Generated)] == [16] * 5


def test_two_nodes_take_what_the_other_gave() -> None:
    nodes = swarm(2)
    advance(nodes, 6)
    assert sum(event.foreign for event in told(nodes[0], Sampled)) > 0
    assert {name for event in told(nodes[0], Sampled) for name in event.by_author} == {"n1"}


def test_foreign_groups_in_a_batch_carry_signal() -> None:
    """The paper's filter: zero-advantage groups go first, then the draw is uniform."""
    nodes = swarm(2, success=0.02)
    advance(nodes, 40)
    taken = sum(event.foreign for event in told(nodes[0], Sampled))
    informative = sum(event.informative for event in told(nodes[1], Verified))
    assert 0 < taken <= informative


@pytest.mark.parametrize(
    "faults", [None, Faults(max_delay_drains=3, dropped=0.2, duplicated=0.3, corrupted=0.2)]
)
def test_same_seed_same_journal(faults: Faults | None) -> None:
    first, second, other = (swarm(3, faults, seed=seed) for seed in (1, 1, 2))
    for nodes in (first, second, other):
        advance(nodes, 8)
    journals = [[node.journal.entries for node in nodes] for nodes in (first, second, other)]
    assert journals[0] == journals[1]
    assert journals[0] != journals[2]


def test_a_broken_network_never_reaches_the_round() -> None:
    nodes = swarm(3, Faults(max_delay_drains=4, dropped=0.3, duplicated=0.5, corrupted=0.5))
    advance(nodes, 20)
    refused = [sum(event.refused.values()) for node in nodes for event in told(node, Sampled)]
    assert sum(refused) > 0
    assert all(len(told(node, Learned)) == 20 for node in nodes)


def test_a_duplicate_is_trained_on_once() -> None:
    clean, doubled = swarm(2), swarm(2, Faults(duplicated=1.0))
    for nodes in (clean, doubled):
        advance(nodes, 10)
    assert [e.by_author for e in told(clean[0], Sampled)] == [e.by_author for e in told(doubled[0], Sampled)]


def test_a_partition_heals() -> None:
    hub = MemoryHub()
    nodes = [make_node(f"n{k}", hub) for k in range(2)]
    hub.partition({Author("n0")}, {Author("n1")})
    advance(nodes, 5)
    assert sum(event.foreign for event in told(nodes[0], Sampled)) == 0
    hub.heal()
    advance(nodes, 5)
    assert sum(event.foreign for event in told(nodes[0], Sampled)) > 0


def foreign_group(**changes: object) -> Group:
    source = Arithmetic()
    task = source.task(7)
    texts = (f"<answer>{task.truth}</answer>", "<answer>x</answer>")
    rollouts = tuple(Rollout(text, finished=True, tokens=3, mean_logprob=-1.0) for text in texts)
    group = Group(Author("stranger"), 1, source.name, source.digest, 7, rollouts)
    return replace(group, **changes)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"source": SourceName("never-heard-of")}, "source"),
        ({"digest": Digest("0123456789abcdef")}, "digest"),
        ({"index": Arithmetic().size}, "index"),
        ({"index": 2**62}, "index"),
    ],
)
def test_what_cannot_be_used_is_refused_by_reason(changes: dict[str, object], reason: str | None) -> None:
    hub = MemoryHub()
    node, stranger = make_node("n0", hub), hub.join(Author("stranger"))
    stranger.publish(foreign_group(**changes))
    node.round()
    [sampled] = told(node, Sampled)
    assert sampled.refused == ({} if reason is None else {reason: 1})
    assert sampled.foreign == (1 if reason is None else 0)


class Unlucky(Arithmetic):
    """Cannot build one of its tasks, as a generator that ran out of time cannot."""

    def task(self, index: int) -> Task:
        if index == 7:
            raise TaskError("arithmetic 7: gave nothing within 10 s")
        return super().task(index)


def test_a_task_that_cannot_be_built_is_refused() -> None:
    hub = MemoryHub()
    node, stranger = make_node("n0", hub, sources=(Unlucky(),)), hub.join(Author("stranger"))
    stranger.publish(foreign_group())
    node.round()
    assert told(node, Sampled)[0].refused == {"task": 1}


def test_rewards_are_the_receivers_own() -> None:
    """A sender cannot say what is right: the wire has no place for it, and the receiver verifies."""
    lying = foreign_group(rollouts=(Rollout("<answer>wrong</answer>", True, 3, -1.0),) * 2)
    assert b"reward" not in encode(lying)
    hub = MemoryHub()
    node, stranger = make_node("n0", hub), hub.join(Author("stranger"))
    stranger.publish(lying)
    node.round()
    assert told(node, Sampled)[0].foreign == 0


def test_a_flood_costs_no_more_than_the_limit() -> None:
    hub = MemoryHub()
    node = make_node("n0", hub, verify_limit_groups=8, pool=Pool(limit_groups=10_000, max_age_rounds=4))
    stranger = hub.join(Author("stranger"))
    wrong = (Rollout("<answer>wrong</answer>", True, 3, -1.0),) * 2
    for round_number in range(200):
        stranger.publish(foreign_group(round=round_number, rollouts=wrong))
    node.round()
    [sampled] = told(node, Sampled)
    assert (sampled.foreign, sampled.pool) == (0, 200 - 8)


@pytest.mark.parametrize(("share", "expected"), [("everything", 4), ("nothing", 0)])
def test_shares_what_it_is_told_to(share: str, expected: int) -> None:
    node = make_node("n0", MemoryHub(), share=share)
    node.round()
    assert told(node, Shared)[0].groups == expected


def test_shares_informative_groups_only() -> None:
    node = make_node("n0", MemoryHub(), share="informative", success=0.1)
    advance([node], 20)
    given = [event.groups for event in told(node, Shared)]
    assert given == [event.informative for event in told(node, Verified)]
    assert 0 < sum(given) < 80


def test_the_index_hangs_on_author_and_round() -> None:
    first, twin, other = (make_node(name, MemoryHub()) for name in ("n0", "n0", "n1"))
    drawn = [[task.index for task in node.draw()] for node in (first, twin, other)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert [task.index for task in first.draw()] != drawn[0]


def test_a_silo_twin_draws_the_same_tasks_first() -> None:
    """Twins of a demo differ in their mix only: the swarm's four tasks are the first of the silo's eight."""
    swarm_node, silo = (
        make_node("n0", MemoryHub(), mix=Fixed(4, 4)),
        make_node("n0", MemoryHub(), mix=Fixed(8, 0)),
    )
    assert [task.index for task in silo.draw()][:4] == [task.index for task in swarm_node.draw()]


class Recorder:
    """Stands where a learner does and keeps what it is handed."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def learn(self, groups: Sequence[ScoredGroup]) -> Lesson:
        self.batches.append([scored.group.author for scored in groups])
        return Lesson(0, 0, 0.0, 0.0, 0.0, 0.0)


def test_the_batch_is_own_groups_then_foreign_ones() -> None:
    hub, recorder = MemoryHub(), Recorder()
    nodes = [
        make_node("n0", hub, learner=recorder, mix=Fixed(3, 2), success=0.5),
        make_node("n1", hub, success=0.5),
    ]
    advance(nodes, 5)
    assert recorder.batches[0] == ["n0"] * 3
    assert recorder.batches[-1] == ["n0"] * 3 + ["n1"] * 2
