"""From a configuration to a node: the one place where all parts meet.

Torch and Zenoh are imported only where the configuration asks for them, so that a scripted node needs no
torch and a lone one no network.
"""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from waggledance import __version__
from waggledance.cli.audit import open_verifier, vet
from waggledance.cli.guarding import gate_for, open_ledger, prefers_useful
from waggledance.config import NodeConfig
from waggledance.errors import UsageError
from waggledance.journal import Journal
from waggledance.learner.none import NoLearner
from waggledance.node import Node, NodeSettings, Stopwatch
from waggledance.policy.endpoint import EndpointPolicy, parsed
from waggledance.policy.scripted import ScriptedPolicy
from waggledance.prompt import SYSTEM_PROMPT
from waggledance.rollout import Author
from waggledance.seams import Card, LastingLearner, Policy, Source, Swarm, Verifier
from waggledance.seed import derive
from waggledance.sharing.mixes import open_mix
from waggledance.sharing.pool import Pool
from waggledance.sharing.share import NOTHING
from waggledance.swarm.memory import MemoryHub
from waggledance.task import SourceName, Task
from waggledance.tasks import Jsonl, open_sources
from waggledance.verify import RULES, right_answer

if TYPE_CHECKING:
    from waggledance.model import Model
    from waggledance.swarm.identity import Identity
    from waggledance.swarm.ticket import Ticket


ENDPOINT_KEY = "OPENAI_API_KEY"
"""The environment variable that servers' own tools read."""


@dataclass(frozen=True, slots=True)
class Assembled:
    node: Node
    swarm: Swarm
    swarm_name: str
    verifier: Verifier
    model: "Model | None"
    """None for a node without weights."""
    learner: LastingLearner


@dataclass(frozen=True, slots=True)
class Place:
    """A run's folder and who works there."""

    folder: Path
    author: Author
    identity: "Identity | None"
    """None for a node that meets nobody."""
    key: str = ""
    """The fingerprint of the key that lies there, whoever's draws it makes."""


def open_place(config: NodeConfig, folder: Path) -> Place:
    from waggledance.swarm.identity import KEY, kept_key, open_identity

    if config.swarm.kind == "none":
        key = kept_key(folder) if (folder / KEY).exists() else ""
        return Place(folder, Author(config.name), None, key)
    identity = open_identity(folder, config.name, time.time())
    return Place(folder, identity.author, identity)


def assemble(
    config: NodeConfig,
    place: Place,
    journal: Journal,
    swarm: Swarm | None = None,
    stopwatch: Stopwatch = time.perf_counter,
) -> Assembled:
    """Opens everything that may fail before the swarm, so that nobody joins who cannot work. A swarm that is
    given is taken instead of the one that the configuration names."""
    sources = open_sources(config.tasks)
    verifier = open_verifier(sources, config.verify)
    vet(sources, config, verifier)
    model, policy, learner = thinking(config)
    card = Card(
        model=config.policy.model if model else config.policy.kind,
        weights=model.weights if model else 0,
        version=__version__,
        sources={source.name: source.digest for source in sources},
    )
    ticket = None if swarm or place.identity is None else _members_ticket(config)
    is_open = ticket is not None and ticket.is_open
    private = place.identity is not None and not is_open
    gate = gate_for(config, model, is_open=is_open)
    prefer_useful = prefers_useful(config, is_open=is_open)
    swarm, swarm_name = (swarm, "") if swarm else _open_swarm(config, place, ticket, card)
    node = Node(
        NodeSettings(
            author=place.author,
            seed=config.seed,
            completions=config.policy.completions,
            share=config.swarm.share if config.swarm.kind != "none" else NOTHING,
            verify_limit_groups=config.pool.verify_limit_groups,
            verify_limit_s=config.verify.limit_s,
            key=place.key,
            carries=_carried(sources) if private and config.swarm.carry == "files" else frozenset(),
            rules=frozenset(RULES) if private else frozenset(),
            prefer_useful=prefer_useful,
        ),
        sources=sources,
        policy=policy,
        learner=learner,
        mix=open_mix(config.mix),
        pool=Pool(limit_groups=config.pool.limit_groups, max_age_rounds=config.pool.max_age_rounds),
        swarm=swarm,
        verifier=verifier,
        journal=journal,
        gate=gate,
        ledger=open_ledger(place.folder, is_open=is_open),
        stopwatch=stopwatch,
    )
    return Assembled(node, swarm, swarm_name, verifier, model, learner)


def thinking(
    config: NodeConfig, model: "Model | None" = None
) -> "tuple[Model | None, Policy, LastingLearner]":
    """Who answers and what learns; with the model that is given instead of the one that is named."""
    wanted = config.policy
    if wanted.kind == "scripted":
        if config.learner.kind != "none":
            raise UsageError(
                f"learner.kind = {config.learner.kind!r}: a scripted policy has no weights; set it to 'none'"
            )
        return None, ScriptedPolicy(_right_answer, wanted.success), NoLearner()
    if wanted.kind == "endpoint":
        return None, _endpoint(config), NoLearner()
    import torch

    from waggledance.model import load_model
    from waggledance.policy.hf import HFPolicy

    if config.threads:
        torch.set_num_threads(config.threads)
    if model is None:
        model = load_model(
            wanted.model,
            device=wanted.device,
            system_prompt=wanted.system_prompt,
            precision=wanted.precision,
        )
    policy = HFPolicy(model, wanted.temperature, wanted.max_tokens)
    if config.learner.kind == "none":
        if config.learner.lora_rank:
            raise UsageError(
                f"learner.lora_rank = {config.learner.lora_rank}: learner.kind 'none' learns nothing; "
                "set the rank to 0 or name another learner"
            )
        return model, policy, NoLearner()
    if wanted.temperature == 0:
        raise UsageError(
            "policy.temperature = 0: greedy rollouts of a task are all the same and teach nothing; "
            "raise it or set learner.kind to 'none'"
        )
    if config.learner.lora_rank:
        from waggledance.adapter import adapt

        seed = derive(config.seed, config.name, "adapter")
        adapt(model, config.learner.lora_rank, config.learner.lora_scale, seed)
    return model, policy, learner_of(config, model)


def _endpoint(config: NodeConfig) -> Policy:
    wanted = config.policy
    if wanted.endpoint is None:
        raise UsageError("policy.kind = 'endpoint': set policy.endpoint, like http://localhost:8080/v1")
    if config.learner.kind != "none":
        raise UsageError(
            f"learner.kind = {config.learner.kind!r}: an endpoint's weights are not here; set it to 'none'"
        )
    parsed(wanted.endpoint)
    return EndpointPolicy(
        address=wanted.endpoint,
        model=wanted.model,
        system_prompt=SYSTEM_PROMPT if wanted.system_prompt is None else wanted.system_prompt,
        temperature=wanted.temperature,
        max_tokens=wanted.max_tokens,
        at_once=wanted.at_once,
        timeout_s=wanted.timeout_s,
        retries=wanted.retries,
        key=os.environ.get(ENDPOINT_KEY, ""),
    )


def learner_of(config: NodeConfig, model: "Model") -> LastingLearner:
    from waggledance.learner.grpo import GRPO, GRPOSettings
    from waggledance.learner.loss import Clip
    from waggledance.learner.ppo import PPO, PPOSettings

    wanted = config.learner
    clip = Clip(wanted.clip_low, wanted.clip_high)
    temperature, max_tokens = config.policy.temperature, config.policy.max_tokens
    if wanted.kind == "ppo":
        return PPO(
            model,
            PPOSettings(
                learning_rate=wanted.learning_rate,
                value_learning_rate=wanted.value_learning_rate,
                clip=clip,
                kl_weight=wanted.kl_weight,
                max_grad_norm=wanted.max_grad_norm,
                epochs=wanted.epochs,
                discount=wanted.discount,
                trace=wanted.trace,
                temperature=temperature,
                max_tokens=max_tokens,
                memory_bytes=wanted.memory_mb << 20,
                recompute=wanted.recompute,
                max_skipped=wanted.max_skipped,
            ),
        )
    return GRPO(
        model,
        GRPOSettings(
            learning_rate=wanted.learning_rate,
            clip=clip,
            kl_weight=wanted.kl_weight,
            max_grad_norm=wanted.max_grad_norm,
            epochs=wanted.epochs,
            temperature=temperature,
            max_tokens=max_tokens,
            variant=wanted.kind,
            memory_bytes=wanted.memory_mb << 20,
            recompute=wanted.recompute,
            max_skipped=wanted.max_skipped,
        ),
    )


def _right_answer(task: Task) -> str:
    return right_answer(task.rule, task.truth)


def _carried(sources: Sequence[Source]) -> frozenset[SourceName]:
    """Those that others cannot build: a user's own files."""
    return frozenset(source.name for source in sources if isinstance(source, Jsonl))


def _members_ticket(config: NodeConfig) -> "Ticket":
    from waggledance.swarm.ticket import Role

    ticket = ticket_of(config)
    if ticket.role is not Role.MEMBER:
        raise UsageError(
            f"swarm.ticket: a {ticket.role}'s ticket cannot train; ask for a member's, or use it with "
            f"`waggle {'status' if ticket.role is Role.WATCHER else 'router'} --ticket`"
        )
    return ticket


def _open_swarm(config: NodeConfig, place: Place, ticket: "Ticket | None", card: Card) -> tuple[Swarm, str]:
    """The swarm and its name."""
    if place.identity is None or ticket is None:
        return MemoryHub().join(place.author), ""
    from waggledance.swarm.zenoh import WINDOWS, open_zenoh_swarm

    swarm = open_zenoh_swarm(
        ticket,
        place.identity,
        card,
        connect=config.swarm.connect,
        listen=config.swarm.listen,
        interface=config.swarm.interface,
        windows=place.folder / WINDOWS,
    )
    return swarm, ticket.name


def ticket_of(config: NodeConfig) -> "Ticket":
    """The one that was given; without one this user's own swarm of that name, founded when it is first
    wanted."""
    from waggledance.swarm.founding import cut, kept_or_new
    from waggledance.swarm.ticket import read_ticket

    if config.swarm.ticket is not None:
        return read_ticket(config.swarm.ticket)
    return cut(kept_or_new(Path(config.home), config.swarm.name))
