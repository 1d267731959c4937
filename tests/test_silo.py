"""A node with J = 0, whole: in the midst of a chattering swarm it is plain GRPO, bit for bit."""

# pyright: standard

from collections.abc import Sequence
from pathlib import Path

from swarm_run import make_node
from test_learner import SETTINGS, PlainGRPO, equal, weights_of
from test_model import toy
from test_node import foreign_group, told
from waggledance.events import Learned, Sampled
from waggledance.learner.grpo import GRPO
from waggledance.policy.hf import HFPolicy
from waggledance.rollout import Author, Group, ScoredGroup
from waggledance.seams import Failure, Pair, Verdict
from waggledance.seed import derive
from waggledance.sharing.fixed import Fixed
from waggledance.swarm.memory import MemoryHub
from waggledance.tasks import Arithmetic

SEED, ROUNDS, OWN, COMPLETIONS = 3, 6, 4, 4


class Even:
    """Pays texts of even length: a model that knows nothing is right now and then."""

    def verify(self, pairs: Sequence[Pair]) -> list[Verdict]:
        return [tuple(float(len(text) % 2 == 0) for text in texts) for _, texts in pairs]

    def close(self) -> None: ...


def test_a_node_that_takes_nothing_is_plain_grpo(tmp_path: Path) -> None:
    ours, theirs = toy(tmp_path / "ours"), toy(tmp_path / "theirs")
    hub = MemoryHub()
    stranger = hub.join(Author("stranger"))
    node = make_node(
        "n0",
        hub,
        seed=SEED,
        mix=Fixed(OWN, 0),
        completions=COMPLETIONS,
        policy=HFPolicy(ours, 1.0, 12),
        learner=GRPO(ours, SETTINGS),
        verifier=Even(),
    )
    plain, policy, source = PlainGRPO(theirs, cached=True), HFPolicy(theirs, 1.0, 12), Arithmetic()
    for number in range(1, ROUNDS + 1):
        stranger.publish(foreign_group(round=number))
        node.round()

        def seed(*words: str | int, number: int = number) -> int:
            return derive(SEED, "n0", number, *words)

        tasks = [source.task(seed("index", k) % source.size) for k in range(OWN)]
        answers = policy.generate(tasks, COMPLETIONS, seed("generate"))
        pairs = [(task, [r.text for r in rollouts]) for task, rollouts in zip(tasks, answers, strict=True)]
        groups = [
            ScoredGroup(
                Group(Author("n0"), number, source.name, source.digest, task.index, rollouts), task, rewards
            )
            for task, rollouts, rewards in zip(tasks, answers, Even().verify(pairs), strict=True)
            if not isinstance(rewards, Failure)
        ]
        assert told(node, Learned)[-1].loss == plain.learn(groups, 1)
        assert equal(weights_of(ours), weights_of(theirs))
    assert all(event.groups > 0 for event in told(node, Learned))
    assert [(event.own, event.foreign, event.pool) for event in told(node, Sampled)][-1] == (OWN, 0, 5)
