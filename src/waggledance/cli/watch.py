"""`waggle watch`: a run as it happens, or once more as it happened."""

import argparse
import signal
import time
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import msgspec

from waggledance.cli.serving import Looks, add_page_flags, looking, page_config
from waggledance.cli.verb import add_verb
from waggledance.cli.watching import Replay, Watching, journals_below, need_journals, newest_run
from waggledance.config import PageConfig
from waggledance.errors import UsageError
from waggledance.view import tally
from waggledance.view.panels import Swarms
from waggledance.view.tally import Tally

RUNS = Path("runs")
SHOW_EVERY_S = 0.5
LOOK_EVERY_S = 5.0
"""How often nodes that have come since are looked for."""
SPEED = 10.0
SPEED_LIMIT = 1e6

DESCRIPTION = """Whether it is learning, whether the swarm helps, who gives what, what was refused and why,
what is being said: read from a run's folder while its nodes work. Ctrl-C ends the looking, not the run."""
EXAMPLE = """example:
  waggle watch                                        # the newest run below runs/
  waggle watch runs/demo-20260101-120000              # silo beside swarm
  waggle watch runs/alice --page                      # in a browser, at the address it prints
  waggle watch --replay runs/alice/journal.jsonl --speed 100"""


class Watched(msgspec.Struct, frozen=True):
    swarms: dict[str, Tally]
    ended: bool
    """Whether every node said that it was done."""
    seconds: float


def add_parser(verbs: Any) -> None:
    parser = add_verb(
        verbs, "watch", "a run as it happens, live", description=DESCRIPTION, example=EXAMPLE, run=run
    )
    parser.add_argument("dir", nargs="?", type=Path, help="a run's folder (the newest below runs/)")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="a journal, or a run's folder, once more")
    parser.add_argument("--speed", type=float, help=f"of the replay, times as fast as it was ({SPEED:g})")
    add_page_flags(parser)


def run(options: argparse.Namespace) -> int:
    place, page = _checked(options), page_config(options)
    signal.signal(signal.SIGTERM, _interrupt)
    if options.replay is None:
        swarms, now = _follow(place, page), time.time()
    else:
        swarms, now = _replay(place, options.speed or SPEED, page)
    if options.json:
        print(msgspec.json.encode(_watched(swarms, now)).decode())
    return 0


def _checked(options: argparse.Namespace) -> Path:
    if options.replay is None:
        if options.speed is not None:
            raise UsageError(f"--speed {options.speed:g}: only a replay has a speed; add --replay FILE")
        return options.dir or newest_run(RUNS)
    if options.dir is not None:
        raise UsageError(f"{options.dir} and --replay {options.replay}: name one of them")
    if options.speed is not None and not 0 < options.speed <= SPEED_LIMIT:
        raise UsageError(f"--speed {options.speed:g}: take more than 0, {SPEED_LIMIT:g} at most")
    return options.replay


def _follow(place: Path, wanted: PageConfig) -> Swarms:
    with ExitStack() as stack:
        watching = stack.enter_context(closing(Watching(need_journals(place))))
        looks = stack.enter_context(_looking(place, wanted))
        with suppress(KeyboardInterrupt):
            look_at = time.monotonic() + LOOK_EVERY_S
            while True:
                watching.read()
                states, now = watching.states.values(), time.time()
                elapsed = tally.seconds_since_start(states, now)
                looks.show(watching.states, elapsed, tally.seconds_of_silence(states, now))
                if tally.progress(states).ended:
                    break
                time.sleep(SHOW_EVERY_S)
                if time.monotonic() >= look_at:
                    look_at = time.monotonic() + LOOK_EVERY_S
                    watching.follow(journals_below(place))
            looks.linger()
    return watching.states


def _replay(place: Path, speed: float, wanted: PageConfig) -> tuple[Swarms, float]:
    """Shows it at that speed; gives the end's states and time."""
    replay = Replay(need_journals(place))
    start, at = time.monotonic(), replay.started_at
    with _looking(place, wanted) as looks, suppress(KeyboardInterrupt):
        while True:
            replay.read_until(at)
            looks.show(replay.states, tally.seconds_since_start(replay.states.values(), at), 0.0)
            if replay.ended:
                break
            time.sleep(SHOW_EVERY_S)
            at = replay.started_at + speed * (time.monotonic() - start)
        looks.linger()
    return replay.states, at


def _looking(place: Path, wanted: PageConfig) -> AbstractContextManager[Looks]:
    folder = place if place.is_dir() else place.parent
    return looking(folder.resolve().name, wanted, sorted(folder.glob("*.png")))


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _watched(swarms: Swarms, now: float) -> Watched:
    return Watched(
        swarms={label: tally.tally(swarm) for label, swarm in swarms.items()},
        ended=tally.progress(swarms.values()).ended,
        seconds=round(tally.seconds_since_start(swarms.values(), now), 1),
    )
