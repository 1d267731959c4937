"""Nodes over a swarm in memory, for tests: scripted answers, arithmetic, no clock but a counter."""

from collections.abc import Callable
from itertools import count

from waggledance.journal import Journal
from waggledance.learner.none import NoLearner
from waggledance.node import Node, NodeSettings
from waggledance.policy.scripted import ScriptedPolicy
from waggledance.rollout import Author
from waggledance.seams import Learner, Policy, Source, Swarm, Verifier
from waggledance.sharing.fixed import Fixed
from waggledance.sharing.gate import Gate
from waggledance.sharing.ledger import Ledger
from waggledance.sharing.pool import Pool
from waggledance.swarm.memory import MemoryHub
from waggledance.task import SourceName, Task
from waggledance.tasks import Arithmetic
from waggledance.verify import Uncaged, right_answer


def truth_of(task: Task) -> str:
    return right_answer(task.rule, task.truth)


def ticking() -> Callable[[], float]:
    """A clock for journals that must come out the same twice."""
    ticks = count()
    return lambda: next(ticks) / 1000


def make_node(
    name: str,
    hub: MemoryHub,
    *,
    seed: int = 1,
    success: float = 0.3,
    mix: Fixed | None = None,
    completions: int = 4,
    policy: Policy | None = None,
    learner: Learner | None = None,
    sources: tuple[Source, ...] | None = None,
    share: str = "everything",
    verify_limit_groups: int = 64,
    pool: Pool | None = None,
    swarm: Swarm | None = None,
    verifier: Verifier | None = None,
    key: str = "",
    carries: frozenset[SourceName] = frozenset(),
    rules: frozenset[str] = frozenset(),
    gate: Gate | None = None,
    ledger: Ledger | None = None,
    prefer_useful: bool = False,
) -> Node:
    author = Author(name)
    return Node(
        NodeSettings(
            author,
            seed,
            completions,
            share,
            verify_limit_groups,
            key=key,
            carries=carries,
            rules=rules,
            prefer_useful=prefer_useful,
        ),
        sources=sources or (Arithmetic(),),
        policy=policy or ScriptedPolicy(truth_of, success),
        learner=learner or NoLearner(),
        mix=mix or Fixed(4, 4),
        pool=pool or Pool(limit_groups=256, max_age_rounds=4),
        swarm=swarm or hub.join(author),
        verifier=verifier or Uncaged(),
        journal=Journal(author, ticking()),
        gate=gate,
        ledger=ledger,
        stopwatch=ticking(),
    )


def advance(nodes: list[Node], rounds: int) -> None:
    for _ in range(rounds):
        for node in nodes:
            node.round()
