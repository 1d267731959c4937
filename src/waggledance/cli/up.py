"""`waggle up`: one node. Trains, shares, and saves its model."""

import argparse
import json
import os
import signal
import threading
import time
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from waggledance.cli.assemble import open_place
from waggledance.cli.serving import add_page_flag, served
from waggledance.cli.training import JOURNAL, SETTINGS, train
from waggledance.cli.verb import add_verb
from waggledance.cli.watching import Watching
from waggledance.config import NodeConfig, keys, read_config, write_config
from waggledance.errors import StorageError, UsageError
from waggledance.journal import Journal
from waggledance.swarm.identity import KEY, SESSION, write_secret
from waggledance.view import tally
from waggledance.view.page import Page
from waggledance.view.state import NodeState
from waggledance.view.terminal import DemoView

SHOW_EVERY_S = 0.5
WRITTEN = (JOURNAL, SETTINGS, KEY, SESSION)
"""What a run has written before it starts."""

EXAMPLE = """example:
  waggle up node.toml --rounds 200 --learner.learning_rate 2e-4
  WAGGLE_POLICY_MODEL=./my-model waggle up --tasks paper --swarm.name our-lab"""


def add_parser(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "up",
        "one node: trains, shares, saves its model",
        description="One node. Settings come from the TOML file, then WAGGLE_… variables, then flags.",
        example=EXAMPLE,
        run=run,
    )
    parser.add_argument("toml", nargs="?", type=Path, metavar="node.toml")
    parser.add_argument("--dir", type=Path, help="the run's folder (default: runs/NAME)")
    parser.add_argument("--ticket", dest="swarm.ticket", metavar="T", help="the same as --swarm.ticket")
    add_page_flag(parser)
    for key in keys():
        default = ",".join(key.default) if key.is_list else key.default
        shown = "" if default in (None, "") else f" (default: {default})"
        parser.add_argument(
            f"--{key.dotted}", dest=key.dotted, metavar="V", help=key.description.replace("%", "%%") + shown
        )


def run(options: argparse.Namespace) -> int:
    flags = {
        key.dotted: getattr(options, key.dotted) for key in keys() if getattr(options, key.dotted) is not None
    }
    config = read_config(options.toml, os.environ, flags)
    folder: Path = options.dir or Path("runs") / config.name
    stop = threading.Event()
    with _stopping_on_signals(stop):
        state = _run(config, folder, stop)
    print(json.dumps(_result(state, folder)) if options.json else _words(state))
    return 0


def _run(config: NodeConfig, folder: Path, stop: threading.Event) -> NodeState:
    before = {path for path in (folder, *(folder / name for name in WRITTEN)) if os.path.lexists(path)}
    _claim(folder)
    watching = Watching({"node": [folder / JOURNAL]})
    try:
        write_secret(folder / SETTINGS, write_config(config).encode())  # a ticket is a secret
        place = open_place(config, folder)
        with closing(Journal(place.author, time.time, folder / JOURNAL)) as journal, _shown(config, watching):
            train(config, place, journal, stop.is_set)
    finally:
        watching.read()
        watching.close()
        if not _started(watching):
            _forget(folder, before)
    [state] = watching.states["node"].nodes.values()
    return state


def _claim(folder: Path) -> None:
    """Of two runs that want one folder at the same moment, one gets it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not _made(folder / JOURNAL):
            raise UsageError(f"{folder} holds a run already; name another folder with --dir")
    except OSError as error:
        raise StorageError(f"cannot write to {folder}: {error.strerror}; name another with --dir") from error


def _made(file: Path) -> bool:
    try:
        file.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _started(watching: Watching) -> bool:
    return any(node.started_at is not None for node in watching.states["node"].nodes.values())


def _forget(folder: Path, before: set[Path]) -> None:
    """A run that could not start leaves only what was there: the next one may have its folder."""
    with suppress(OSError):
        for path in (folder / name for name in WRITTEN):
            if path not in before:
                path.unlink(missing_ok=True)
        if folder not in before:
            folder.rmdir()


@contextmanager
def _stopping_on_signals(stop: threading.Event) -> Generator[None]:
    """The first Ctrl-C or SIGTERM ends the run after its round, model saved; a second one at once."""

    def take(number: int, _frame: FrameType | None) -> None:
        stop.set()
        signal.signal(number, signal.default_int_handler)

    before = {number: signal.signal(number, take) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _shown(config: NodeConfig, watching: Watching) -> Generator[None]:
    """Shows the journal as it grows, from a thread of its own: the round does not draw."""
    ended = threading.Event()
    start = time.monotonic()

    def draw(page: Page | None) -> None:
        with DemoView(note=page.note if page else "") as view:
            while not ended.wait(SHOW_EVERY_S):
                watching.read()
                elapsed = time.monotonic() - start
                silent = tally.seconds_of_silence(watching.states.values(), time.time())
                if page:
                    page.show(watching.states, elapsed, silent_seconds=silent)
                if _started(watching):
                    view.show(watching.states, elapsed, silent_seconds=silent)

    with served(config.name, config.page) as page:
        thread = threading.Thread(target=draw, args=(page,), name="view")
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def _result(state: NodeState, folder: Path) -> dict[str, object]:
    return {
        "rounds": state.own.rounds,
        "own": state.own.mean,
        "trained": state.trained.mean,
        "heldout_start": state.heldout_start,
        "heldout": state.heldout.newest[1] if state.heldout.newest else None,
        "tokens_generated": state.tokens_generated,
        "tokens_trained": state.tokens_trained,
        "taken": dict(state.taken),
        "refused": dict(state.refused),
        "ended": state.finished,
        "model": state.saved,
        "journal": str(folder / JOURNAL),
    }


def _words(state: NodeState) -> str:
    lines = [f"{state.author}: {state.finished} after {state.own.rounds} rounds"]
    if state.own.mean is not None and state.trained.mean is not None:
        lines.append(f"own reward {state.own.mean:.3f}, trained reward {state.trained.mean:.3f}")
    if state.heldout_start is not None and state.heldout.newest:
        lines.append(f"held-out reward {state.heldout_start:.3f} → {state.heldout.newest[1]:.3f}")
    if state.saved:
        lines.append(f"model: {state.saved}")
    return "\n".join(lines)
