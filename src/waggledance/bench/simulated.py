"""Simulated swarms: real nodes, pools, mixes, appetites and ears under one sky, round after round."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from waggledance.bench.pupil import Pupil, Skill
from waggledance.bench.sky import Sky, SkySwarm
from waggledance.config import MixConfig, PoolConfig
from waggledance.journal import Journal
from waggledance.node import Node, NodeSettings
from waggledance.seams import Card
from waggledance.sharing.fixed import Fixed
from waggledance.sharing.pool import Pool
from waggledance.sharing.share import EVERYTHING

MIX, POOL = MixConfig(), PoolConfig()
"""A node's defaults, here as everywhere."""


@dataclass(frozen=True, slots=True)
class Simulated:
    node: Node
    pupil: Pupil
    swarm: SkySwarm


class SimulatedSwarm:
    def __init__(
        self,
        pupils: Sequence[Pupil],
        skill: Skill,
        *,
        seed: int,
        completions: int,
        round_s: float,
        share: str = EVERYTHING,
    ) -> None:
        card = Card("scripted", 0, "0.1.0", {skill.name: skill.digest})
        self._sky = Sky(len(pupils), card, round_s)
        self.nodes = [
            _node(self._sky, place, pupil, skill, seed, completions, share)
            for place, pupil in enumerate(pupils)
        ]
        self._mark = 0

    def round(self) -> None:
        """One of every node, in their order; whoever comes later hears the earlier ones at once."""
        before, self._mark = self._mark, self._sky.newest()
        for simulated in self.nodes:
            simulated.node.round()
            simulated.node.journal.entries.clear()  # thousands of nodes fill the memory otherwise
        self._sky.forget(before)


def _node(
    sky: Sky, place: int, pupil: Pupil, skill: Skill, seed: int, completions: int, share: str
) -> Simulated:
    swarm = sky.join(f"n{place}")
    node = Node(
        NodeSettings(swarm.author, seed, completions, share, POOL.verify_limit_groups),
        sources=(skill,),
        policy=pupil,
        learner=pupil,
        mix=Fixed(MIX.own, MIX.foreign),
        pool=Pool(limit_groups=POOL.limit_groups, max_age_rounds=POOL.max_age_rounds),
        swarm=swarm,
        verifier=skill,
        journal=Journal(swarm.author, time.time),
    )
    return Simulated(node, pupil, swarm)
