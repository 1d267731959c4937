"""`waggle report`: a run as one HTML file that a person can mail."""

import argparse
import json
import platform
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from waggledance import __version__
from waggledance.cli.training import SETTINGS
from waggledance.cli.verb import add_verb
from waggledance.cli.watching import Watching, need_journals, newest_run
from waggledance.errors import MissingError
from waggledance.view import tally
from waggledance.view.picture import draw_curves
from waggledance.view.report import Facts, report
from waggledance.whole import write_whole

RUNS = Path("runs")
REPORT, CURVES = "report.html", "report-curves.png"
SECRETS = ("ticket", "token", "key", "password", "secret")
VERSIONS = ("torch", "transformers", "eclipse-zenoh", "reasoning-gym", "msgspec")

DESCRIPTION = """What was trained, curves, before and after with intervals, cost, the swarm, refusals,
settings and versions: one HTML file without a script or a link to anything else, and its picture as a PNG.
Tickets and tokens are left out."""
EXAMPLE = """example:
  waggle report                                   # the newest run below runs/
  waggle report runs/alice --out alice.html"""


def add_parser(verbs: Any) -> None:
    parser = add_verb(
        verbs, "report", "a run as one HTML file to mail", description=DESCRIPTION, example=EXAMPLE, run=run
    )
    parser.add_argument("dir", nargs="?", type=Path, help="a run's folder (the newest below runs/)")
    parser.add_argument("--out", type=Path, help=f"where to write it (default: {REPORT} in the run's folder)")


def run(options: argparse.Namespace) -> int:
    place: Path = options.dir or newest_run(RUNS)
    journals = need_journals(place)
    folder = place if place.is_dir() else place.parent
    out: Path = options.out or folder / REPORT
    picture = out.with_name(CURVES if out.name == REPORT else f"{out.stem}-curves.png")
    with closing(Watching(journals)) as watching:
        watching.read()
        states = watching.states
    if not any(swarm.nodes for swarm in states.values()):
        raise MissingError(f"the journals in {place} are empty: the run has not started yet")
    name = folder.resolve().name
    draw_curves(picture, states, title=name)
    seconds = tally.seconds_since_start(states.values(), _newest(states))
    pictures = [("Curves of the rewards by round", picture.read_bytes())]
    html = report(name, states, seconds, _facts(journals), pictures)
    write_whole(out, html.encode(), "the report")
    if options.json:
        print(json.dumps({"report": str(out), "pictures": [str(picture)]}))
    else:
        print(f"report: {out}\npicture: {picture}")
    return 0


def _newest(states: Mapping[str, Any]) -> float:
    return max(node.seen_at for swarm in states.values() for node in swarm.nodes.values())


def _facts(journals: Mapping[str, Sequence[Path]]) -> Facts:
    settings: dict[str, str] = {}
    for label, paths in journals.items():
        for path in paths[:1]:  # nodes of one label are set alike but for their names
            found = path.with_name(SETTINGS)
            if found.is_file():
                settings[f"{label}: {path.parent.name}"] = _without_secrets(
                    found.read_text("utf-8", "replace")
                )
    versions = {"waggledance": __version__, "python": platform.python_version()}
    return Facts(
        when=datetime.fromtimestamp(time.time(), UTC).strftime("%d %B %Y, %H:%M UTC"),
        machine=f"{platform.system()} {platform.machine()}",
        versions=versions | {name: _version(name) for name in VERSIONS},
        settings=settings,
    )


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "–"


def _without_secrets(toml: str) -> str:
    return "\n".join(
        f"{line.partition('=')[0]}= (left out)" if line.partition("=")[0].strip() in SECRETS else line
        for line in toml.splitlines()
    )
