"""`waggle demo`: language models that learn together, beside the same ones alone.

Real node processes over Zenoh on loopback, each training the shipped tiny model: once alone ("silo") and once
sharing ("swarm"), with the same seeds and the same number of groups to train on. Ends with a table, a picture
and the models.
"""

import argparse
import hashlib
import re
import signal
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import msgspec
from rich.console import Console

from waggledance.cli.outcome import Outcome, outcome, table
from waggledance.cli.processes import NodeProcesses
from waggledance.cli.serving import add_page_flags, looking, page_config
from waggledance.cli.space import check_space
from waggledance.cli.training import JOURNAL, MODEL, SETTINGS
from waggledance.cli.verb import add_verb
from waggledance.cli.watching import Watching
from waggledance.config import (
    CheckpointConfig,
    EvaluateConfig,
    LearnerConfig,
    MixConfig,
    NodeConfig,
    PageConfig,
    PolicyConfig,
    SwarmConfig,
    write_config,
)
from waggledance.errors import StorageError, UsageError
from waggledance.swarm.endpoint import ANY_LOOPBACK_PORT, free_loopback_endpoint
from waggledance.swarm.founding import cut, found
from waggledance.swarm.identity import KEY, SEED_BYTES, write_secret
from waggledance.swarm.ticket import write_ticket
from waggledance.view.picture import draw_curves

NODES, ROUNDS, SEED, MIX = 8, 100, 1, "4/4"
NODES_LIMIT = 64
GROUPS_LIMIT = 1024
"""A round's, own and foreign: more than that no node takes."""
SHOW_EVERY_S = 0.5
NODE_BYTES = 8_000_000
"""Room for what one node writes: model, journal, log."""
LEARNING_RATE = 1.5e-4
KL_WEIGHT = 0.02
MAX_TOKENS = 16
HELDOUT_TASKS = 70

DESCRIPTION = """Language models that learn together, beside the same ones alone: real node processes on this
machine, each training the shipped tiny model. Ends with a table, a picture and the models."""
EXAMPLE = """example:
  waggle demo
  waggle demo --nodes 4 --rounds 60 --mix 6/2 --json > result.json"""


@dataclass(frozen=True, slots=True)
class Demo:
    nodes: int
    rounds: int
    seed: int
    own: int
    foreign: int
    folder: Path
    page: PageConfig

    @property
    def mix(self) -> str:
        return f"{self.own}/{self.foreign}"

    @property
    def silo_mix(self) -> str:
        """The same number of groups to train on, all of them one's own."""
        return f"{self.own + self.foreign}/0"


def add_parser(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "demo",
        "see on this machine what sharing does: silo beside swarm, three minutes",
        description=DESCRIPTION,
        example=EXAMPLE,
        run=run,
    )
    parser.add_argument("--nodes", type=int, default=NODES, help=f"nodes in the swarm, and in silo ({NODES})")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds each node does ({ROUNDS})")
    parser.add_argument("--seed", type=int, default=SEED, help=f"of tasks and sampling ({SEED})")
    parser.add_argument("--mix", default=MIX, help=f"own/foreign groups to train on in a round ({MIX})")
    parser.add_argument("--dir", type=Path, help="where to write (default: runs/demo-DATE-TIME)")
    add_page_flags(parser)


def run(options: argparse.Namespace) -> int:
    demo = _checked(options)
    check_space(demo.folder, 2 * demo.nodes * NODE_BYTES)
    result = _result(demo)
    if options.json:
        print(msgspec.json.encode(result).decode())
    else:
        _print_result(demo, result)
    return 0


def _checked(options: argparse.Namespace) -> Demo:
    for name, least, most in (("nodes", 1, NODES_LIMIT), ("rounds", 1, 10**6), ("seed", 0, 2**63 - 1)):
        value = getattr(options, name)
        if not least <= value <= most:
            raise UsageError(f"--{name} {value}: take {least} to {most}")
    mix = re.fullmatch(r"(\d{1,3})/(\d{1,3})", options.mix)
    if mix is None or int(mix[1]) == 0 or int(mix[1]) + int(mix[2]) > GROUPS_LIMIT:
        raise UsageError(
            f"--mix {options.mix}: write own/foreign groups a round, as in 4/4; own is at least 1, "
            f"both together {GROUPS_LIMIT} at most"
        )
    folder = options.dir or Path("runs") / f"demo-{datetime.now().astimezone():%Y%m%d-%H%M%S}"
    _refuse_used(folder)
    return Demo(
        options.nodes, options.rounds, options.seed, int(mix[1]), int(mix[2]), folder, page_config(options)
    )


def _refuse_used(folder: Path) -> None:
    try:
        used = folder.exists() and any(folder.iterdir())
    except OSError as error:
        raise StorageError(f"cannot use {folder}: {error.strerror}; name another with --dir") from error
    if used:
        raise UsageError(f"{folder} is not empty; name another folder with --dir")


def _result(demo: Demo) -> Outcome:
    start = time.monotonic()
    folders = _write_settings(demo)
    nodes = [folder for side in folders.values() for folder in side]
    watching = Watching({label: [folder / JOURNAL for folder in side] for label, side in folders.items()})
    signal.signal(signal.SIGTERM, _interrupt)
    with looking(demo.folder.name, demo.page) as looks, NodeProcesses(nodes) as processes:
        running = True
        while running:
            running = processes.running()
            watching.read()
            looks.show(watching.states, time.monotonic() - start)
            if running:
                time.sleep(SHOW_EVERY_S)
    watching.close()
    picture = demo.folder / "curves.png"
    with _writing(demo.folder):
        draw_curves(picture, watching.states, title=_title(demo))
    result = outcome(
        watching.states,
        seed=demo.seed,
        mix=demo.mix,
        seconds=time.monotonic() - start,
        picture=picture,
        models=[folder / MODEL for folder in nodes],
    )
    with _writing(demo.folder):
        (demo.folder / "result.json").write_bytes(msgspec.json.format(msgspec.json.encode(result)))
    return result


@contextmanager
def _writing(folder: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot write to {folder}: {error.strerror}; name another with --dir") from error


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    """SIGTERM ends a demo as Ctrl-C does: no process is left behind."""
    raise KeyboardInterrupt


def _title(demo: Demo) -> str:
    return f"{demo.nodes} language models alone ({demo.silo_mix}) and sharing ({demo.mix}), seed {demo.seed}"


def _write_settings(demo: Demo) -> dict[str, list[Path]]:
    """A folder a node with its settings, the silo's first; twins have the same name and seed."""
    meeting_point = free_loopback_endpoint()
    founding = found("demo")
    folders: dict[str, list[Path]] = {"silo": [], "swarm": []}
    with _writing(demo.folder):
        for place in range(demo.nodes):
            # The first listens where the others dial; from there on each finds each.
            connect, listen = ((), meeting_point) if place == 0 else ((meeting_point,), ANY_LOOPBACK_PORT)
            ticket = write_ticket(cut(founding))
            swarm = SwarmConfig(kind="zenoh", ticket=ticket, connect=connect, listen=(listen,))
            sides = {
                "silo": (MixConfig(own=demo.own + demo.foreign, foreign=0), SwarmConfig(kind="none")),
                "swarm": (MixConfig(own=demo.own, foreign=demo.foreign), swarm),
            }
            for label, (mix, joined) in sides.items():
                folder = demo.folder / label / f"n{place}"
                folder.mkdir(parents=True)
                settings = write_config(_node(demo, folder.name, mix, joined))
                write_secret(folder / SETTINGS, settings.encode())
                write_secret(folder / KEY, _key(demo, folder.name).hex().encode())
                folders[label].append(folder)
    return folders


def _key(demo: Demo, name: str) -> bytes:
    """What a node draws hangs on its key: twins have the same one, and a seed the same draws each time. It is
    no secret, and need not be: the swarm's key, which is drawn at random, keeps others out."""
    return hashlib.blake2b(
        f"{demo.seed} {name}".encode(), digest_size=SEED_BYTES, person=b"waggle demo"
    ).digest()


def _node(demo: Demo, name: str, mix: MixConfig, swarm: SwarmConfig) -> NodeConfig:
    return NodeConfig(
        name=name,
        seed=demo.seed,
        rounds=demo.rounds,
        tasks=("easy",),
        threads=1,
        policy=PolicyConfig(model="tiny", max_tokens=MAX_TOKENS),
        learner=LearnerConfig(learning_rate=LEARNING_RATE, kl_weight=KL_WEIGHT),
        mix=mix,
        swarm=swarm,
        evaluate=EvaluateConfig(tasks=HELDOUT_TASKS, completions=4),
        checkpoint=CheckpointConfig(kind="none"),  # a demo begins anew, it does not go on
    )


def _print_result(demo: Demo, result: Outcome) -> None:
    console = Console(file=sys.stdout, highlight=False)
    console.print(table(result, demo.silo_mix))
    console.print(f"picture: {result.picture}", soft_wrap=True)
    console.print(f"look on: waggle watch {demo.folder} --page", markup=False, soft_wrap=True)
    console.print(f"models:  {demo.folder}/{{silo,swarm}}/n*/{MODEL}", markup=False, soft_wrap=True)
