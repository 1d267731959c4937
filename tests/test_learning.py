"""Every learner, as the configuration names it: what it is made of, and that it learns an easy task."""

# pyright: standard

from collections.abc import Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

import pytest
import torch

from swarm_run import make_node
from test_node import told
from waggledance.cli.assemble import learner_of
from waggledance.config import NodeConfig, check_config
from waggledance.events import Learned, Verified
from waggledance.learner.grpo import GRPO
from waggledance.learner.ppo import PPO
from waggledance.model import Model, load_model
from waggledance.policy.hf import HFPolicy
from waggledance.seams import Pair, Verdict
from waggledance.sharing.fixed import Fixed
from waggledance.swarm.memory import MemoryHub

KINDS = ("grpo", "dr_grpo", "rloo", "gspo", "ppo")


@pytest.fixture(scope="module")
def model() -> Model:
    torch.set_num_threads(1)
    return load_model("tiny")


def configured(**learner: Any) -> NodeConfig:
    return check_config({"policy": {"temperature": 0.9, "max_tokens": 17}, "learner": learner})


def settings_of(learner: Any) -> dict[str, Any]:
    return asdict(learner._settings)


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_a_learner_of_its_own(model: Model, kind: str) -> None:
    learner = learner_of(configured(kind=kind), model)
    assert type(learner) is (PPO if kind == "ppo" else GRPO)
    found = settings_of(learner)
    assert found.get("variant", "ppo") == kind
    assert (found["temperature"], found["max_tokens"]) == (0.9, 17)


@pytest.mark.parametrize("kind", ["grpo", "ppo"])
def test_every_setting_arrives(model: Model, kind: str) -> None:
    """Each with a value of its own, so that none can stand in another's place."""
    wanted = {
        "learning_rate": 0.011, "clip_low": 0.12, "clip_high": 0.13, "kl_weight": 0.0, "max_grad_norm": 0.15,
        "epochs": 6, "value_learning_rate": 0.17, "discount": 0.18, "trace": 0.19,
    }  # fmt: skip
    found = settings_of(learner_of(configured(kind=kind, **wanted), model))
    clip = found.pop("clip")
    found.update(clip_low=clip["low"], clip_high=clip["high"])
    only_ppo = {"value_learning_rate", "discount", "trace"}
    for name, value in wanted.items():
        if kind == "ppo" or name not in only_ppo:
            assert found[name] == value, name


class Equals:
    """Pays answers that begin with an equals sign: the tiny model says so one time in five."""

    def verify(self, pairs: Sequence[Pair]) -> list[Verdict]:
        return [tuple(float(text.startswith("=")) for text in texts) for _, texts in pairs]

    def close(self) -> None: ...


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_learner_learns_an_easy_task(kind: str) -> None:
    torch.set_num_threads(1)
    model = load_model("tiny")
    config = check_config(
        {
            "policy": {"max_tokens": 12},
            "learner": {"kind": kind, "learning_rate": 1e-4, "epochs": 2 if kind == "ppo" else 1},
        }
    )
    node = make_node(
        "n0",
        MemoryHub(),
        seed=1,
        mix=Fixed(8, 0),
        completions=8,
        policy=HFPolicy(model, 1.0, 12),
        learner=learner_of(config, model),
        verifier=Equals(),
    )
    for _ in range(40):
        node.round()
    rewards = [event.reward for event in told(node, Verified)]
    assert fmean(rewards[-10:]) > fmean(rewards[:5]) + 0.3
    assert (told(node, Learned)[-1].value_loss > 0) == (kind == "ppo")
