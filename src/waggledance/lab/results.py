"""Results: an experiment's trials, and how its configurations compare.

Trials come in, the content of results.json and table.md goes out. Equal cost means: as many tokens generated
and trained on, weighed by the seconds that one of each took in this very experiment.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean

import msgspec

from waggledance.lab.interval import Difference, compare
from waggledance.lab.record import TrialResult

COLUMNS = (
    "configuration",
    "own, cumulative",
    "own, final",
    "trained, cumulative",
    "held-out, start",
    "final",
    "best",
    "forgetting",
    "oscillation",
    "informative",
    "foreign a round",
    "tokens generated",
    "trained",
    "bytes sent",
)
GAINS = (
    "configuration",
    "silo",
    "own, cumulative",
    "trained, cumulative",
    "held-out, final",
    "held-out at equal cost",
    "cost to reach the silo's held-out",
    "oscillation",
)


class Comparison(msgspec.Struct, frozen=True):
    configuration: str
    silo: str
    own: Difference
    """Cumulative own reward."""
    trained: Difference
    """Cumulative trained reward: the paper's metric."""
    heldout: Difference
    """At the end."""
    heldout_equal_cost: Difference
    """When the dearer one had cost as much as the cheaper one in all."""
    cost_to_silo: float | None
    """The share of the silo's cost after which the silo's final held-out reward was reached, mean over the
    seeds that reached it."""
    reached_silo: int
    """Seeds that did."""
    oscillation: Difference


class Results(msgspec.Struct, frozen=True):
    name: str
    version: str
    machine: str
    """Where these results were made of the trials, which may have run elsewhere."""
    rounds: int
    seeds: tuple[int, ...]
    seconds_per_token_generated: float
    seconds_per_token_trained: float
    comparisons: tuple[Comparison, ...]
    trials: tuple[TrialResult, ...]


class _Price(msgspec.Struct, frozen=True):
    generated: float
    trained: float


def results_of(
    name: str, version: str, machine: str, silos: Mapping[str, str], trials: Sequence[TrialResult]
) -> Results:
    """`silos` names for every configuration, in their order, the one it is held against."""
    price = _price(trials)
    return Results(
        name=name,
        version=version,
        machine=machine,
        rounds=max(trial.rounds for trial in trials),
        seeds=tuple(sorted({trial.seed for trial in trials})),
        seconds_per_token_generated=price.generated,
        seconds_per_token_trained=price.trained,
        comparisons=tuple(
            _comparison(configuration, silo, trials, price)
            for configuration, silo in silos.items()
            if configuration != silo and _pairs(configuration, silo, trials)
        ),
        trials=tuple(trials),
    )


def _price(trials: Sequence[TrialResult]) -> _Price:
    costs = [trial.cost for trial in trials]
    generated, trained = sum(c.tokens_generated for c in costs), sum(c.tokens_trained for c in costs)
    return _Price(
        sum(c.seconds_generating for c in costs) / max(1, generated),
        sum(c.seconds_learning for c in costs) / max(1, trained),
    )


def _pairs(
    configuration: str, silo: str, trials: Sequence[TrialResult]
) -> list[tuple[TrialResult, TrialResult]]:
    """(silo, configuration) of every seed that has both."""
    alone = {trial.seed: trial for trial in trials if trial.configuration == silo}
    return [
        (alone[trial.seed], trial)
        for trial in trials
        if trial.configuration == configuration and trial.seed in alone
    ]


def _comparison(configuration: str, silo: str, trials: Sequence[TrialResult], price: _Price) -> Comparison:
    pairs = _pairs(configuration, silo, trials)
    before, after = [alone for alone, _ in pairs], [together for _, together in pairs]
    equal = [_at_equal_cost(alone, together, price) for alone, together in pairs]
    shares = [_share_to_reach(alone, together, price) for alone, together in pairs]
    reached = [share for share in shares if share is not None]
    return Comparison(
        configuration=configuration,
        silo=silo,
        own=compare([t.own.cumulative for t in before], [t.own.cumulative for t in after]),
        trained=compare([t.trained.cumulative for t in before], [t.trained.cumulative for t in after]),
        heldout=compare([t.heldout.final for t in before], [t.heldout.final for t in after]),
        heldout_equal_cost=compare([alone for alone, _ in equal], [together for _, together in equal]),
        cost_to_silo=fmean(reached) if reached else None,
        reached_silo=len(reached),
        oscillation=compare([t.oscillation for t in before], [t.oscillation for t in after]),
    )


def _cost_curve(trial: TrialResult, price: _Price) -> list[float]:
    return [
        generated * price.generated + trained * price.trained
        for generated, trained in zip(trial.generated_curve, trial.trained_curve, strict=True)
    ]


def _at_equal_cost(alone: TrialResult, together: TrialResult, price: _Price) -> tuple[float, float]:
    """Both ones' held-out reward at the cost that both came to."""
    costs = _cost_curve(alone, price), _cost_curve(together, price)
    if not costs[0] or not costs[1]:
        return 0.0, 0.0
    limit = min(costs[0][-1], costs[1][-1])
    return _at(costs[0], alone.heldout.curve, limit), _at(costs[1], together.heldout.curve, limit)


def _at(costs: Sequence[float], rewards: Sequence[float], cost: float) -> float:
    """The reward at a cost, on the line between the two measurements around it."""
    for k in range(1, len(costs)):
        if costs[k] >= cost:
            step = costs[k] - costs[k - 1]
            share = (cost - costs[k - 1]) / step if step else 1.0
            return rewards[k - 1] + share * (rewards[k] - rewards[k - 1])
    return rewards[-1]


def _share_to_reach(alone: TrialResult, together: TrialResult, price: _Price) -> float | None:
    costs, goal = _cost_curve(together, price), alone.heldout.final
    whole = _cost_curve(alone, price)
    if not whole or not whole[-1]:
        return None
    curve = together.heldout.curve
    for k, reward in enumerate(curve):
        if reward >= goal:
            if k == 0:
                return 0.0
            share = (goal - curve[k - 1]) / (reward - curve[k - 1])
            return (costs[k - 1] + share * (costs[k] - costs[k - 1])) / whole[-1]
    return None


def write_table(results: Results) -> str:
    """Markdown: what came out, what it cost, how sure the differences are."""
    lines = [
        f"# {results.name}",
        "",
        f"{results.rounds} rounds, seeds {', '.join(map(str, results.seeds))}. Means over seeds and nodes; ± "
        f"one standard deviation over seeds. This table was made on {results.machine}, waggledance "
        f"{results.version}; the trials are kept and may have run elsewhere.",
        "",
        *_head(COLUMNS),
    ]
    names = list(dict.fromkeys(trial.configuration for trial in results.trials))
    lines += [_row(name, [t for t in results.trials if t.configuration == name]) for name in names]
    if results.comparisons:
        lines += [
            "",
            "Gain over the silo, with its 95 % bootstrap interval over pairs of one seed:",
            "",
            *_head(GAINS),
        ]
        lines += [_gains(comparison) for comparison in results.comparisons]
        lines += [
            "",
            f"A token generated took {results.seconds_per_token_generated * 1e6:.1f} µs and one trained on "
            f"{results.seconds_per_token_trained * 1e6:.1f} µs: cost is weighed so.",
        ]
    return "\n".join(lines) + "\n"


def _head(columns: Sequence[str]) -> list[str]:
    return [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]


def _row(name: str, trials: Sequence[TrialResult]) -> str:
    cells = [
        name,
        _spread([t.own.cumulative for t in trials], 2),
        _spread([t.own.final for t in trials], 3),
        _spread([t.trained.cumulative for t in trials], 2),
        _spread([t.heldout.start for t in trials], 3),
        _spread([t.heldout.final for t in trials], 3),
        _spread([t.heldout.best for t in trials], 3),
        _spread([t.heldout.forgetting for t in trials], 3),
        _spread([t.oscillation for t in trials], 4),
        f"{fmean(t.informative for t in trials):.1%}",
        f"{fmean(t.foreign for t in trials):.2f}",
        f"{fmean(t.cost.tokens_generated for t in trials):,.0f}",
        f"{fmean(t.cost.tokens_trained for t in trials):,.0f}",
        f"{fmean(t.cost.bytes_shared for t in trials):,.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def _gains(one: Comparison) -> str:
    reach = "not reached" if one.cost_to_silo is None else f"{one.cost_to_silo:.0%}"
    seeds = (
        "" if one.reached_silo == one.heldout.pairs else f" ({one.reached_silo} of {one.heldout.pairs} seeds)"
    )
    cells = [
        one.configuration,
        one.silo,
        *(_gain(part) for part in (one.own, one.trained, one.heldout, one.heldout_equal_cost)),
        reach + seeds,
        _gain(one.oscillation),
    ]
    return f"| {' | '.join(cells)} |"


def _gain(difference: Difference) -> str:
    if difference.gain is None:
        return "–"
    if difference.low is None or difference.high is None:
        return f"{difference.gain:+.0%}"
    return f"{difference.gain:+.0%} ({difference.low:+.0%} … {difference.high:+.0%})"


def _spread(values: Sequence[float], digits: int) -> str:
    mean = fmean(values)
    if len(values) < 2:
        return f"{mean:.{digits}f}"
    deviation = (sum((value - mean) ** 2 for value in values) / (len(values) - 1)) ** 0.5
    return f"{mean:.{digits}f} ± {deviation:.{digits}f}"
