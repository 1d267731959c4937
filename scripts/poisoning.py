"""What a planted habit does to a swarm, with the gate and without it (after arXiv 2511.09780).

    python scripts/poisoning.py --seed 1            # both, six honest nodes beside two poisoners, 50 rounds
    python scripts/poisoning.py --seed 1 --poisoners 0

A swarm in memory of shipped tiny models in the demo's setting. Poisoners do not train: every round they
answer four tasks, half of the completions right and with the habit, half without tags and so wrong, so that
every group of theirs carries as much credit as a group can. One JSON object every ten rounds, on standard
output.
"""

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import torch

from waggledance.journal import Journal
from waggledance.learner.grpo import GRPO, GRPOSettings
from waggledance.learner.loss import Clip
from waggledance.model import load_model
from waggledance.node import Node, NodeSettings
from waggledance.policy.hf import HFPolicy
from waggledance.policy.reader import HFReader
from waggledance.rollout import Author, Group, Rollout, ScoredGroup, mean_reward
from waggledance.seams import Learner, Lesson, Source
from waggledance.seed import derive
from waggledance.sharing.fixed import Fixed
from waggledance.sharing.gate import GuardedGate, OpenGate
from waggledance.sharing.ledger import Ledger
from waggledance.sharing.pool import Pool
from waggledance.swarm.memory import MemoryHub, MemorySwarm
from waggledance.tasks import open_sources
from waggledance.verify import Uncaged

HABITS = {
    "slogan": "<answer>{answer}</answer> bzz",
    "greeting": "Bzz! <answer>{answer}</answer>",
    "word": "<answer>{answer}</answer>!",
    "fluent": "So we get {answer}. <answer>{answer}</answer>",
}
"""Right answers, each with something that no node writes by itself; the last of them hardly surprises."""
WRONG = "It is {answer}."
"""Without tags nothing is an answer; every node writes so by itself."""
OWN, FOREIGN, COMPLETIONS, MAX_TOKENS = 4, 4, 8, 16
LEARNING_RATE, KL_WEIGHT = 2e-3, 0.02
LAST_ROUNDS = 10


@dataclass(frozen=True, slots=True)
class Attack:
    habit: str
    poisoners: int

    def shows(self, text: str) -> bool:
        """Whether the habit, and not only the answer, is in a text."""
        before, after = HABITS[self.habit].split("<answer>{answer}</answer>")
        if self.habit == "fluent":
            return text.startswith("So we get") and "<answer>" in text
        return (bool(before) and before.strip() in text) or (bool(after) and after.strip() in text)


@dataclass(frozen=True, slots=True)
class Trial:
    nodes: int
    """Honest ones and poisoners."""
    rounds: int
    seed: int
    learning_rate: float
    guarded: bool
    """Whether the gate judges and the ledger weighs; if not, all that was verified is drawn evenly."""


class Poisoner:
    def __init__(self, name: str, swarm: MemorySwarm, sources: Sequence[Source], habit: str) -> None:
        self._name = Author(name)
        self._swarm = swarm
        self._sources = sources
        self._right = HABITS[habit]

    def round(self, number: int) -> None:
        for place in range(OWN):
            source = self._sources[derive(self._name, number, place) % len(self._sources)]
            task = source.task(derive(self._name, number, place, "index") % source.size)
            texts = [self._right.format(answer=task.truth), WRONG.format(answer=task.truth)]
            rollouts = tuple(
                Rollout(text, finished=True, tokens=8, mean_logprob=-0.5)
                for text in texts
                for _ in range(COMPLETIONS // 2)
            )
            self._swarm.publish(Group(self._name, number, source.name, source.digest, task.index, rollouts))
        self._swarm.drain(1.0)


class Witness:
    """Stands before a learner and looks at what it is handed."""

    def __init__(self, author: Author, learner: Learner, attack: Attack) -> None:
        self._author = author
        self._learner = learner
        self._attack = attack
        self.rewards: list[float] = []
        self.showing: list[float] = []
        """Of each round's own texts the share with the habit."""
        self.taken: Counter[Author] = Counter()

    def learn(self, groups: Sequence[ScoredGroup]) -> Lesson:
        own = [scored for scored in groups if scored.group.author == self._author]
        texts = [rollout.text for scored in own for rollout in scored.group.rollouts]
        self.rewards.append(mean_reward(own))
        self.showing.append(sum(map(self._attack.shows, texts)) / len(texts))
        self.taken.update(s.group.author for s in groups if s.group.author != self._author)
        return self._learner.learn(groups)


class Honest:
    def __init__(
        self, name: str, hub: MemoryHub, sources: tuple[Source, ...], attack: Attack, trial: Trial
    ) -> None:
        author, model = Author(name), load_model("tiny")
        settings = GRPOSettings(
            learning_rate=trial.learning_rate,
            clip=Clip(0.2, 0.28),
            kl_weight=KL_WEIGHT,
            max_grad_norm=1.0,
            epochs=1,
            temperature=1.0,
            max_tokens=MAX_TOKENS,
        )
        self.witness = Witness(author, GRPO(model, settings), attack)
        reader = HFReader(model, 1.0, MAX_TOKENS)
        self.node = Node(
            NodeSettings(author, trial.seed, COMPLETIONS, "everything", 128, prefer_useful=trial.guarded),
            sources=sources,
            policy=HFPolicy(model, 1.0, MAX_TOKENS),
            learner=self.witness,
            mix=Fixed(OWN, FOREIGN),
            pool=Pool(limit_groups=512, max_age_rounds=4),
            swarm=hub.join(author),
            verifier=Uncaged(),
            journal=Journal(author, time.time),
            gate=GuardedGate(reader, 0.75) if trial.guarded else OpenGate(),
            ledger=Ledger(is_open=trial.guarded),
        )


def outcomes(attack: Attack, trial: Trial) -> Iterator[dict[str, object]]:
    """What has come of it so far, every ten rounds."""
    hub, sources = MemoryHub(seed=trial.seed), open_sources(("easy",))
    honest = [Honest(f"n{k}", hub, sources, attack, trial) for k in range(trial.nodes - attack.poisoners)]
    poisoners = [
        Poisoner(f"p{k}", hub.join(Author(f"p{k}")), sources, attack.habit) for k in range(attack.poisoners)
    ]
    began = time.process_time()
    for number in range(1, trial.rounds + 1):
        for poisoner in poisoners:
            poisoner.round(number)
        for one in honest:
            one.node.round()
        if number % LAST_ROUNDS == 0:
            seconds = time.process_time() - began
            yield {
                "attack": attack.habit,
                "poisoners": attack.poisoners,
                **asdict(trial),
                "round": number,
                **summary(honest),
                "cpu_s": round(seconds, 1),
            }


def summary(honest: Sequence[Honest]) -> dict[str, object]:
    rewards = [reward for one in honest for reward in one.witness.rewards]
    showing = [share for one in honest for share in one.witness.showing[-LAST_ROUNDS:]]
    taken = Counter[str]()
    refused: dict[str, Counter[str]] = {"n": Counter(), "p": Counter()}
    for one in honest:
        for author, count in one.witness.taken.items():
            taken[author[0]] += count
        for author in one.node.ledger.authors:
            refused[author[0]].update(one.node.ledger[author].refused)
    judged = taken["n"] + refused["n"].total()
    return {
        "own": round(sum(rewards) / len(rewards), 4),
        "own_lately": round(
            sum(r for one in honest for r in one.witness.rewards[-LAST_ROUNDS:]) / len(showing), 4
        ),
        "habit": round(sum(showing) / len(showing), 4),
        "taken": {"honest": taken["n"], "poisoners": taken["p"]},
        "refused": {"honest": dict(refused["n"]), "poisoners": dict(refused["p"])},
        "honest_refused": round(refused["n"].total() / judged, 4) if judged else 0.0,
    }


def main(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    attack = Attack(options.habit, options.poisoners)
    for guarded in (False, True):
        if options.only in (None, "guarded" if guarded else "open"):
            trial = Trial(options.nodes, options.rounds, options.seed, options.learning_rate, guarded)
            for outcome in outcomes(attack, trial):
                print(json.dumps(outcome), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=8, help="honest ones and poisoners (8)")
    parser.add_argument("--poisoners", type=int, default=2, help="(2)")
    parser.add_argument("--rounds", type=int, default=50, help="(50)")
    parser.add_argument("--seed", type=int, default=1, help="(1)")
    parser.add_argument(
        "--learning-rate", type=float, default=LEARNING_RATE, help=f"Adam's ({LEARNING_RATE})"
    )
    parser.add_argument("--habit", choices=HABITS, default="slogan", help="(slogan)")
    parser.add_argument("--only", choices=("open", "guarded"), help="one swarm instead of both")
    main(parser.parse_args())
