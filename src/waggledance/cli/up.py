"""`waggle up`: one node. Trains, shares, and saves its model."""

import argparse
import fcntl
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from waggledance.cli.assemble import open_place
from waggledance.cli.keeping import CHECKPOINTS
from waggledance.cli.serving import add_page_flag, looking
from waggledance.cli.tracking import tracked
from waggledance.cli.training import JOURNAL, SETTINGS, Run
from waggledance.cli.verb import add_verb
from waggledance.cli.watchdog import Watchdog
from waggledance.cli.watching import Watching
from waggledance.config import NodeConfig, keys, read_config, write_config
from waggledance.errors import INTERRUPTED_EXIT_CODE, StorageError, UsageError
from waggledance.journal import Journal, mend
from waggledance.swarm.identity import KEY, SESSION, write_secret
from waggledance.view import tally
from waggledance.view.state import NodeState

SHOW_EVERY_S = 0.5
WRITTEN = (JOURNAL, SETTINGS, KEY, SESSION)
"""What a run has written before it starts."""
PATIENCE_BYTES = 1_000_000
"""Of the journal, while the disk is full: some hundred rounds."""
LEAVE_S = 6.0
"""How long a round may still take when the node is to stop. Closing takes another second or two."""
CLAIM_S = 3.0
"""How long a killed run's offspring may still hold its folder."""
WORKER = "training"

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
    if options.toml is None and os.path.isfile(folder / SETTINGS):
        config = read_config(folder / SETTINGS, os.environ, flags)
    stop = threading.Event()
    with _stopping_on_signals(stop):
        state, left = _run(config, folder, stop)
        print(json.dumps(_result(state, folder)) if options.json else _words(state), flush=True)
        if left:
            os._exit(0)  # a thread is still in the middle of a round
    return 0


def _run(config: NodeConfig, folder: Path, stop: threading.Event) -> tuple[NodeState, bool]:
    """How it ended, and whether that was in the middle of a round."""
    before = {path for path in (folder, *(folder / name for name in WRITTEN)) if os.path.lexists(path)}
    with _alone(folder):
        settings = _content(folder / SETTINGS)
        mend(folder / JOURNAL)
        watching, started = Watching({"node": [folder / JOURNAL]}), False
        try:
            _check_goes_on(config, folder, watching)
            write_secret(folder / SETTINGS, write_config(config).encode())  # a ticket is a secret
            place = open_place(config, folder)
            with closing(Journal(place.author, time.time, folder / JOURNAL, PATIENCE_BYTES)) as journal:
                run = Run(config, place, journal, stop.is_set)
                try:
                    left = _attend(config, folder, run, journal, watching, stop)
                finally:
                    started = run.started
        finally:
            watching.read()
            watching.close()
            if not started:
                _forget(folder, before, settings)
    return watching.states["node"].nodes[place.author], left


def _attend(
    config: NodeConfig, folder: Path, run: Run, journal: Journal, watching: Watching, stop: threading.Event
) -> bool:
    """Shows, watches and waits while another thread trains; whether that had to be left in its round."""
    watchdog, begun = Watchdog(journal, config.stuck_after_s), time.monotonic()
    leave_at = float("inf")
    with (
        tracked(config.track, folder / JOURNAL) as tracking,
        looking(config.name, config.page) as looks,
    ):
        worker = ThreadPoolExecutor(1, thread_name_prefix=WORKER)
        training = worker.submit(run.train)
        try:
            while wait([training], SHOW_EVERY_S).not_done:
                watching.read()
                tracking.read()
                if run.started:
                    silent = tally.seconds_of_silence(watching.states.values(), time.time())
                    looks.show(watching.states, time.monotonic() - begun, silent_seconds=silent)
                _tell_if_stuck(watchdog, _phase(watching, journal))
                if stop.is_set():
                    leave_at = min(leave_at, time.monotonic() + LEAVE_S)
                if time.monotonic() > leave_at:
                    run.leave()
                    return True
        finally:
            if not training.done():  # a view that failed must not leave the rounds running
                stop.set()
    worker.shutdown()
    training.result()
    return False


def _phase(watching: Watching, journal: Journal) -> str:
    node = watching.states["node"].nodes.get(journal.node)
    return node.phase if node else "start"


def _tell_if_stuck(watchdog: Watchdog, phase: str) -> None:
    worker = next((thread for thread in threading.enumerate() if thread.name.startswith(WORKER)), None)
    stuck = watchdog.look(phase, worker.ident if worker else None)
    if stuck is not None:
        said = f"stuck in {stuck.phase}: nothing was told for {stuck.seconds:.0f} s, at {stuck.where}"
        print(f"waggle: {said}", file=sys.stderr)


@contextmanager
def _alone(folder: Path) -> Generator[None]:
    """Of two runs that want one folder, one gets it; a kill gives it back."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise StorageError(f"cannot write to {folder}: {error.strerror}; name another with --dir") from error
    try:
        deadline = time.monotonic() + CLAIM_S
        while not _locked(held):
            if time.monotonic() > deadline:
                raise UsageError(f"{folder} is another running node's; stop it, or name another with --dir")
            time.sleep(0.05)
        yield
    finally:
        os.close(held)


def _locked(held: int) -> bool:
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _check_goes_on(config: NodeConfig, folder: Path, watching: Watching) -> None:
    """A run that was never kept cannot go on, and must not be overwritten."""
    watching.read()
    rounds = max((node.round for node in watching.states["node"].nodes.values()), default=0)
    if rounds and (config.checkpoint.kind == "none" or not (folder / CHECKPOINTS).is_dir()):
        raise UsageError(
            f"{folder} holds a run that does not go on, because it keeps no checkpoints; "
            "name another folder with --dir"
        )


def _content(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except OSError:
        return None


def _forget(folder: Path, before: set[Path], settings: bytes | None) -> None:
    """A run that could not start leaves only what was there: the next one may have its folder."""
    with suppress(OSError, StorageError):
        for path in (folder / name for name in WRITTEN):
            if path not in before:
                path.unlink(missing_ok=True)
        if folder not in before:
            folder.rmdir()
        elif settings is not None:
            write_secret(folder / SETTINGS, settings)


@contextmanager
def _stopping_on_signals(stop: threading.Event) -> Generator[None]:
    """The first Ctrl-C or SIGTERM ends the run after its round, model saved; a second one at once."""

    def take(_number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            os.write(sys.stderr.fileno(), b"waggle: interrupted\n")
            os._exit(INTERRUPTED_EXIT_CODE)
        stop.set()

    before = {number: signal.signal(number, take) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _result(state: NodeState, folder: Path) -> dict[str, object]:
    return {
        "rounds": state.own.rounds,
        "own": state.own.mean,
        "trained": state.trained.mean,
        "heldout_start": state.heldout_start,
        "heldout": state.heldout.newest[1] if state.heldout.newest else None,
        "tokens_generated": state.tokens_generated,
        "tokens_trained": state.tokens_trained,
        "skipped_steps": state.skipped_steps,
        "notice": state.started.notice if state.started else "",
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
    if state.skipped_steps:
        lines.append(f"{state.skipped_steps} steps skipped: their gradients were not finite")
    if state.started and state.started.notice:
        lines.append(state.started.notice)
    if state.saved:
        lines.append(f"model: {state.saved}")
    return "\n".join(lines)
