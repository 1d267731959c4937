"""The one-file example runs, and does what the package does: two codes for one algorithm, number for number.

They share none. The example calls the library's own generation and scores whole padded sequences; the package
draws from, and scores on, repeated caches. Tasks, tokens, rewards and what is sampled from the pool must be
equal; gradients and weights up to the rounding of floating-point sums, which double precision keeps small.
"""

# pyright: standard

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from waggledance.cli.assemble import Assembled, Place, assemble
from waggledance.config import LearnerConfig, MixConfig, NodeConfig, PolicyConfig, PoolConfig
from waggledance.evaluate import evaluate
from waggledance.events import Learned, Sampled
from waggledance.journal import Journal
from waggledance.rollout import Author, Group, Rollout, ScoredGroup
from waggledance.seed import derive
from waggledance.swarm.memory import MemoryHub
from waggledance.task import Task
from waggledance.tasks import open_sources
from waggledance.verify import Uncaged

EXAMPLE = Path(__file__).parents[1] / "examples" / "sapo_in_one_file.py"
SEED = 22
"""One whose first rounds hold a right answer: without any, nothing would be learned and all would agree."""


@pytest.fixture(scope="module")
def sapo() -> Any:
    spec = importlib.util.spec_from_file_location(EXAMPLE.stem, EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_runs_and_prints_both_mixes_beside_each_other() -> None:
    command = [sys.executable, "-W", "error", str(EXAMPLE), "--nodes", "2", "--rounds", "1"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    head, *rows = [line.split() for line in run.stdout.splitlines()]
    assert head[-2:] == ["8/0", "4/4"]
    assert [row[0] for row in rows] == ["held-out,", "own,", "held-out,"]
    assert all(0 <= float(number) <= 1 for row in rows for number in row[-2:])


def test_it_fits_its_own_promise() -> None:
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) <= 250


def test_seeds_and_tasks_agree(sapo: Any) -> None:
    words = ("index", 3, "3", -1, "✓")
    assert sapo.derive(*words) == derive(*words)
    for source in open_sources(list(sapo.TASKS)):
        assert source.size == sapo.SIZE
        for index in [*range(0, sapo.SIZE, 25_037), *range(sapo.SIZE, sapo.SIZE + 20)]:
            assert sapo.build(source.name, index) == facts(source.task(index))


@pytest.mark.parametrize(
    ("nodes", "own", "foreign", "rounds"),
    [pytest.param(1, 8, 0, 3, id="silo"), pytest.param(2, 4, 4, 2, id="swarm")],
)
def test_rounds_agree(sapo: Any, nodes: int, own: int, foreign: int, rounds: int) -> None:
    twins = make_twins(sapo, nodes, own, foreign)
    steps = sum([round_agrees(sapo, twin) for _ in range(rounds) for twin in twins])
    assert steps >= 2
    sampled = [entry.event for twin in twins for entry in twin.journal.entries]
    assert any(isinstance(event, Sampled) and event.foreign for event in sampled) == (foreign > 0)
    for twin in twins:
        weights_agree(sapo, twin)


def test_what_is_sampled_from_a_full_pool_agrees_until_it_is_too_old(sapo: Any) -> None:
    hub, author = MemoryHub(), Author("peer")
    [twin] = make_twins(sapo, 1, 1, 2, hub)
    node, source, peer = twin.parts.node, twin.parts.node.sources[0], hub.join(author)
    for index in range(12):
        texts = (f"<answer>{source.task(index).truth}</answer>", "I do not know.")
        rollouts = tuple(Rollout(text, finished=True, tokens=9, mean_logprob=-1.0) for text in texts)
        peer.publish(Group(author, 1, source.name, source.digest, index, rollouts))
        completions = tuple(sapo.Completion(text, finished=True) for text in texts)
        twin.node.inbox.append(sapo.Group(source.name, index, completions))
    taken: list[int] = []
    for _ in range(7):
        twin.node.draw()
        node.draw()
        batch = node.sample([])
        assert twin.node.sample([]) == [scored_facts(scored) for scored in batch]
        taken.append(len(batch))
    assert taken == [2, 2, 2, 2, 2, 0, 0]


def test_held_out_rewards_agree(sapo: Any) -> None:
    """On several seeds: the tiny model is right so rarely that one alone may compare nought with nought."""
    [twin] = make_twins(sapo, 1, 8, 0)
    node = twin.parts.node
    rewards: list[float] = []
    for seed in range(SEED, SEED + 12):
        twin.node.seed = seed
        measured = evaluate(
            node.policy,
            node.sources,
            Uncaged(),
            tasks=sapo.HELD_OUT_TASKS,
            completions=sapo.COMPLETIONS,
            seed=derive(seed, node.settings.author, "heldout"),
        )
        assert twin.node.held_out_reward() == measured.reward
        rewards.append(measured.reward)
    assert any(rewards)


class Twin(NamedTuple):
    node: Any
    """The example's."""
    parts: Assembled
    """The package's node, its model and its end of the swarm."""
    journal: Journal


def make_twins(sapo: Any, nodes: int, own: int, foreign: int, hub: MemoryHub | None = None) -> list[Twin]:
    """The same nodes twice, each kind in a swarm of its own."""
    hub = hub or MemoryHub()
    swarm: list[Any] = []
    twins: list[Twin] = []
    for place in range(nodes):
        name = Author(f"n{place}")
        swarm.append(sapo.Node(name, SEED, own, foreign, swarm))
        journal = Journal(name, lambda: 0.0)
        parts = assemble(
            settings(sapo, name, own, foreign), Place(Path(), name, None), journal, hub.join(name)
        )
        assert parts.model is not None
        for network in (swarm[-1].model, parts.model.network):
            network.double()
        twins.append(Twin(swarm[-1], parts, journal))
    return twins


def settings(sapo: Any, name: str, own: int, foreign: int) -> NodeConfig:
    return NodeConfig(
        name=name,
        seed=SEED,
        tasks=tuple(sapo.TASKS),
        threads=1,
        policy=PolicyConfig(max_tokens=sapo.MAX_TOKENS, completions=sapo.COMPLETIONS),
        learner=LearnerConfig(
            learning_rate=sapo.LEARNING_RATE,
            clip_low=sapo.CLIP_LOW,
            clip_high=sapo.CLIP_HIGH,
            max_grad_norm=sapo.MAX_GRAD_NORM,
        ),
        mix=MixConfig(own=own, foreign=foreign),
        pool=PoolConfig(max_age_rounds=sapo.MAX_AGE_ROUNDS),
    )


def round_agrees(sapo: Any, twin: Twin) -> bool:
    """One round of both, held against each other after every verb; whether a step was taken."""
    mine, node = twin.node, twin.parts.node
    my_tasks, tasks = mine.draw(), node.draw()
    assert my_tasks == [facts(task) for task in tasks]
    my_groups, groups = mine.generate(my_tasks, mine.derive("generate")), node.generate(tasks)
    assert my_groups == [tried(group) for group in groups]
    my_own, own = [sapo.verify(group) for group in my_groups], node.verify(tasks, groups)
    assert my_own == [scored_facts(scored) for scored in own]
    mine.share(my_own)
    node.share(own)
    my_batch, batch = mine.sample(my_own), node.sample(own)
    assert my_batch == [scored_facts(scored) for scored in batch]
    my_loss, my_norm = mine.learn(my_batch)
    node.learn(batch)
    lesson = twin.journal.entries[-1].event
    assert isinstance(lesson, Learned)
    assert (my_loss, my_norm) == pytest.approx((lesson.loss, lesson.grad_norm), abs=1e-6)
    if lesson.groups:
        gradients_agree(twin)
    return lesson.groups > 0


def gradients_agree(twin: Twin) -> None:
    assert twin.parts.model is not None
    network = twin.parts.model.network
    for mine, theirs in zip(twin.node.model.parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=0, atol=1e-7)


def weights_agree(sapo: Any, twin: Twin) -> None:
    """Adam divides a gradient by its own size, so where that is zero but for rounding, rounding counts."""
    assert twin.parts.model is not None
    network = twin.parts.model.network
    for mine, theirs in zip(twin.node.model.parameters(), network.parameters(), strict=True):
        # Norms are made in float32, and Adam makes a good part of a step of a gradient however small.
        apart = (mine - theirs).abs()
        assert apart.max() <= sapo.LEARNING_RATE / 10
        assert (apart > sapo.LEARNING_RATE / 100).double().mean() < 1e-3


def facts(task: Task) -> tuple[Any, ...]:
    return task.source, task.index, task.question, task.truth


def tried(group: Group) -> tuple[Any, ...]:
    rollouts = tuple((rollout.text, rollout.finished, rollout.token_ids) for rollout in group.rollouts)
    return group.source, group.index, rollouts


def scored_facts(scored: ScoredGroup) -> tuple[Any, ...]:
    return tried(scored.group), facts(scored.task), scored.rewards
