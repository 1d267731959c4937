"""What a demo came to: silo and swarm as one object for programs, and as a table for people."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from rich.table import Table

from waggledance.view import tally
from waggledance.view.state import SwarmState
from waggledance.view.tally import Measure, Spread, Tally


class Gain(msgspec.Struct, frozen=True):
    """How much more the swarm's nodes earned than their twins in silo, as a share of the silo's mean."""

    mean: float
    deviation: float
    """Over the nodes: how far one node's gain may be from the mean."""


class Side(msgspec.Struct, frozen=True):
    """One of the two; means over nodes; own and trained reward over rounds too."""

    own: float | None
    trained: float | None
    heldout_start: float | None
    heldout: float | None
    cumulative: float | None
    """Own reward summed over the rounds, per node: what the paper plots."""
    tokens_generated: int
    tokens_trained: int
    groups_shared: int
    bytes_shared: int


class Outcome(msgspec.Struct, frozen=True):
    nodes: int
    rounds: int
    seed: int
    mix: str
    silo: Side
    swarm: Side
    gain_own: float | None
    gain_own_deviation: float | None
    gain_heldout: float | None
    gain_heldout_deviation: float | None
    seconds: float
    picture: str
    models: tuple[str, ...]


def outcome(
    swarms: Mapping[str, SwarmState],
    *,
    seed: int,
    mix: str,
    seconds: float,
    picture: Path,
    models: Sequence[Path],
) -> Outcome:
    silo, swarm = swarms["silo"], swarms["swarm"]
    own, heldout = gain(silo, swarm, tally.own), gain(silo, swarm, tally.heldout)
    counted = tally.tally(swarm)
    return Outcome(
        nodes=counted.nodes,
        rounds=counted.rounds,
        seed=seed,
        mix=mix,
        silo=_side(tally.tally(silo)),
        swarm=_side(counted),
        gain_own=own.mean if own else None,
        gain_own_deviation=own.deviation if own else None,
        gain_heldout=heldout.mean if heldout else None,
        gain_heldout_deviation=heldout.deviation if heldout else None,
        seconds=round(seconds, 1),
        picture=str(picture),
        models=tuple(str(model) for model in models),
    )


def gain(silo: SwarmState, swarm: SwarmState, measure: Measure) -> Gain | None:
    """None where the silo earned nothing: no share of nothing."""
    alone = tally.spread(map(measure, silo.nodes.values()))
    more = tally.gain(silo, swarm, measure)
    if alone is None or more is None or alone.mean == 0:
        return None
    return Gain(more.mean / alone.mean, more.deviation / alone.mean)


def _side(counted: Tally) -> Side:
    return Side(
        own=_mean(counted.own),
        trained=_mean(counted.trained),
        heldout_start=_mean(counted.heldout_start),
        heldout=_mean(counted.heldout),
        cumulative=_mean(counted.cumulative),
        tokens_generated=counted.tokens_generated,
        tokens_trained=counted.tokens_trained,
        groups_shared=counted.groups_shared,
        bytes_shared=counted.bytes_shared,
    )


def _mean(spread: Spread | None) -> float | None:
    return spread.mean if spread else None


def table(result: Outcome, silo_mix: str) -> Table:
    silo, swarm = result.silo, result.swarm
    rows = Table(
        title=f"{result.nodes} nodes, {result.rounds} rounds, seed {result.seed}", title_justify="left"
    )
    rows.add_column("mean over nodes")
    rows.add_column(f"silo ({silo_mix})", justify="right")
    rows.add_column(f"swarm ({result.mix})", justify="right")
    rows.add_column("gain ± spread over nodes", justify="right")
    own_gain = _gain(result.gain_own, result.gain_own_deviation)
    heldout_gain = _gain(result.gain_heldout, result.gain_heldout_deviation)
    rows.add_row("own reward", _reward(silo.own), _reward(swarm.own), own_gain)
    rows.add_row("trained reward", _reward(silo.trained), _reward(swarm.trained), "")
    rows.add_row("held-out reward, before", _reward(silo.heldout_start), _reward(swarm.heldout_start), "")
    rows.add_row("held-out reward, after", _reward(silo.heldout), _reward(swarm.heldout), heldout_gain)
    rows.add_section()
    rows.add_row("tokens generated", f"{silo.tokens_generated:,}", f"{swarm.tokens_generated:,}", "")
    rows.add_row("tokens trained", f"{silo.tokens_trained:,}", f"{swarm.tokens_trained:,}", "")
    rows.add_row("groups shared", "–", f"{swarm.groups_shared:,}", "")
    return rows


def _reward(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _gain(mean: float | None, deviation: float | None) -> str:
    return "–" if mean is None or deviation is None else f"{mean:+.0%} ± {deviation:.0%}"
