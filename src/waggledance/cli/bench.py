"""`waggle bench`: the measurements behind the figures in benchmarks/RESULTS.md, one sub-verb each."""

from typing import Any

from waggledance.cli import bench_round, bench_swarm
from waggledance.cli.verb import add_group

DESCRIPTION = """Measures what this software costs, on this machine, beside others where there are any."""
EXAMPLE = """example:
  waggle bench round
  waggle bench swarm --part aha
  waggle bench swarm --json > swarm.json"""


def add_parser(verbs: Any) -> None:
    kinds = add_group(
        verbs, "bench", "measures what it costs", description=DESCRIPTION, example=EXAMPLE, metavar="WHAT"
    )
    for kind in (bench_round, bench_swarm):
        kind.add_parser(kinds)
