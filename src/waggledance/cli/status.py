"""`waggle status`: a node's state, from outside its process; or who is in a swarm, by its ticket."""

import argparse
import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from waggledance import __version__
from waggledance.cli.snapshot import PeerLine, peer_lines, read_snapshot
from waggledance.cli.training import JOURNAL
from waggledance.cli.verb import add_verb
from waggledance.cli.watching import Watching
from waggledance.errors import MissingError, UsageError
from waggledance.rollout import Author
from waggledance.seams import Card
from waggledance.swarm.identity import make_identity
from waggledance.swarm.ticket import Role, read_ticket, watching
from waggledance.swarm.zenoh import open_zenoh_swarm
from waggledance.view.state import NodeState
from waggledance.view.text import plain

DESCRIPTION = """What a node is doing, whom it meets, what it took and refused: read from its run's folder,
whether its process lives or not. With a ticket instead: who is in the swarm, from any machine."""
EXAMPLE = """example:
  waggle status                       # the newest run below runs/
  waggle status runs/alice --json
  waggle status --ticket waggle…      # looks around for five seconds"""
RUNS = Path("runs")
FILE_WIDTH = 200
LEDGER_ROWS = 24
"""The most useful authors; --json has all of them."""


class AuthorLine(msgspec.Struct, frozen=True):
    """One line of the ledger."""

    given: int
    """Groups that came."""
    taken: int
    """Of those, trained on."""
    refused: dict[str, int]
    useful: float
    """The credit that the ones trained on carried."""


class Status(msgspec.Struct, frozen=True):
    node: Author
    folder: str
    alive: bool
    """Whether the process that wrote the newest snapshot still runs."""
    phase: str
    round: int
    rounds: int
    seconds_ago: float
    """Since the node last told anything."""
    rounds_per_minute: float | None
    model: str
    mix: str
    own: float | None
    trained: float | None
    heldout: float | None
    swarm: str
    peers: tuple[PeerLine, ...]
    parted: dict[str, int]
    taken: dict[str, int]
    """Foreign groups trained on, by author."""
    ledger: dict[str, AuthorLine]
    """What every author gave and what came of it, the most useful first."""
    refused: dict[str, int]
    refused_of: dict[str, dict[str, int]]
    heard: int
    dropped: int
    listening: float
    bytes_sent: int
    bytes_received: int
    trouble: str | None
    error: str | None
    unsaved: str | None
    """Why the newest rounds would not outlive a kill."""
    stuck: str | None


def add_parser(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "status",
        "what a node is doing, or who is in a swarm",
        description=DESCRIPTION,
        example=EXAMPLE,
        run=run,
    )
    parser.add_argument("dir", nargs="?", type=Path, help="a run's folder (the newest below runs/)")
    parser.add_argument("--ticket", help="look into this swarm instead")
    parser.add_argument("--interface", help="where to look, as in swarm.interface")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long to look (5)")


def run(options: argparse.Namespace) -> int:
    if options.ticket is not None:
        if options.dir is not None:
            raise UsageError(f"{options.dir} and --ticket: name a run's folder or give a ticket, not both")
        return _look_around(options)
    status = status_of(options.dir or _newest(RUNS))
    if options.json:
        print(msgspec.json.encode(status).decode())
    else:
        _print(status)
    return 0


def status_of(folder: Path) -> Status:
    node, snapshot = _folded(folder), read_snapshot(folder)
    first, elapsed = node.started_at, node.seen_at - (node.started_at or node.seen_at)
    return Status(
        node=node.author,
        folder=str(folder),
        alive=snapshot is not None and not node.ended and _is_alive(snapshot.pid),
        phase=node.phase,
        round=node.round,
        rounds=node.rounds,
        seconds_ago=round(max(0.0, time.time() - node.seen_at), 1),
        rounds_per_minute=60 * node.own.rounds / elapsed if first is not None and elapsed > 0 else None,
        model=node.model,
        mix=node.mix,
        own=node.own.mean,
        trained=node.trained.mean,
        heldout=node.heldout.newest[1] if node.heldout.newest else None,
        swarm=snapshot.swarm if snapshot else "",
        peers=snapshot.peers if snapshot else (),
        parted=dict(node.parted),
        taken=dict(node.taken),
        ledger=_ledger(node),
        refused=dict(node.refused),
        refused_of={author: dict(reasons) for author, reasons in node.refused_of.items()},
        heard=node.heard,
        dropped=node.dropped,
        listening=node.listening,
        bytes_sent=snapshot.sent_bytes if snapshot else 0,
        bytes_received=snapshot.received_bytes if snapshot else 0,
        trouble=snapshot.trouble if snapshot else None,
        error=node.error,
        unsaved=node.unsaved,
        stuck=node.stuck,
    )


def _newest(runs: Path) -> Path:
    journals = sorted(runs.glob(f"*/{JOURNAL}"), key=lambda path: path.stat().st_mtime)
    if not journals:
        raise MissingError(f"no run below {runs}/; name a run's folder, or start one with `waggle up`")
    return journals[-1].parent


def _folded(folder: Path) -> NodeState:
    if not (folder / JOURNAL).exists():
        raise MissingError(f"{folder} is no run's folder: it has no {JOURNAL}")
    watched = Watching({"node": [folder / JOURNAL]})
    try:
        watched.read()
    finally:
        watched.close()
    nodes = list(watched.states["node"].nodes.values())
    if not nodes:
        raise MissingError(f"{folder / JOURNAL} is empty: the node has not started yet")
    return nodes[-1]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _look_around(options: argparse.Namespace) -> int:
    if not 0 < options.seconds <= 3600:
        raise UsageError(f"--seconds {options.seconds:g}: take more than 0, 3600 at most")
    ticket = read_ticket(options.ticket)
    if ticket.role is Role.ROUTER:
        raise UsageError("this is a router's ticket: it cannot read the swarm; ask for a watcher's")
    nobody = make_identity("watcher", os.urandom(32), session=0)
    swarm = open_zenoh_swarm(
        watching(ticket), nobody, Card("", 0, __version__, {}), interface=options.interface
    )
    try:
        time.sleep(options.seconds)
        peers, trouble = peer_lines(swarm), swarm.trouble
    finally:
        swarm.close()
    if options.json:
        print(json.dumps({"swarm": ticket.name, "peers": msgspec.to_builtins(peers), "trouble": trouble}))
    else:
        console = _console()
        no_link = f"; {plain(trouble, 400)}" if trouble else ""
        console.print(f"{ticket.name}: {len(peers)} here{no_link}", markup=False, soft_wrap=True)
        if peers:
            console.print(_peer_table(peers))
    return 0


def _console() -> Console:
    """As wide as the terminal; what goes into a file or a pipe is not cut."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=FILE_WIDTH)


def _print(status: Status) -> None:
    console = _console()
    state = "running" if status.alive else "not running"
    lines = [
        f"{status.node}: {state}, {status.phase}, round {status.round} of {status.rounds}, "
        f"last heard of {status.seconds_ago:.0f} s ago",
        f"  {plain(status.model, 200)}, {status.mix}: own {_reward(status.own)}, "
        f"trained {_reward(status.trained)}, held-out {_reward(status.heldout)}",
    ]
    if status.swarm:
        lines.append(
            f"  swarm {status.swarm}: {len(status.peers)} here, heard {status.heard} groups, took "
            f"{sum(status.taken.values())}, dropped {status.dropped}, listens to {status.listening:.0%}"
        )
    for title, counts in (("refused", status.refused), ("taken from", status.taken), ("gone", status.parted)):
        if counts:
            ordered = sorted(counts.items(), key=lambda pair: -pair[1])
            lines.append(
                f"  {title}: " + ", ".join(f"{plain(name, 40)} {count}" for name, count in ordered[:12])
            )
    lines += [f"  {what}: {plain(text, 400)}" for what, text in _troubles(status)]
    console.print("\n".join(lines), markup=False, soft_wrap=True)
    if status.ledger:
        console.print(_ledger_table(status.ledger))
    if status.peers:
        console.print(_peer_table(status.peers))


def _troubles(status: Status) -> list[tuple[str, str]]:
    troubles = {
        "no link": status.trouble,
        "stuck": status.stuck,
        "not kept": status.unsaved,
        "error": status.error,
    }
    return [(what, text) for what, text in troubles.items() if text]


def _ledger(node: NodeState) -> dict[str, AuthorLine]:
    authors = {*node.given, *node.taken, *node.refused_of}
    lines = {
        author: AuthorLine(
            given=node.given.get(author, 0),
            taken=node.taken.get(author, 0),
            refused=dict(node.refused_of.get(author, {})),
            useful=round(node.useful.get(author, 0.0), 3),
        )
        for author in authors
    }
    return dict(sorted(lines.items(), key=lambda pair: (-pair[1].useful, pair[0])))


def _ledger_table(ledger: dict[str, AuthorLine]) -> Table:
    """Names are their owners' choice: plain text only."""
    rows = Table(box=None, pad_edge=False)
    for column in ("author", "gave", "taken", "useful", "refused"):
        rows.add_column(column, no_wrap=True)
    for author, line in list(ledger.items())[:LEDGER_ROWS]:
        refused = ", ".join(f"{plain(reason, 24)} {count}" for reason, count in sorted(line.refused.items()))
        rows.add_row(
            plain(author, 48), str(line.given), str(line.taken), f"{line.useful:.1f}", refused or "–"
        )
    return rows


def _reward(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _peer_table(peers: tuple[PeerLine, ...]) -> Table:
    """Only plain text: what a peer says of itself may hold anything."""
    rows = Table(box=None, pad_edge=False)
    for column in ("peer", "since (UTC)", "model", "weights", "sources", "round", "a minute"):
        rows.add_column(column, no_wrap=True)
    for peer in peers:
        rows.add_row(
            plain(peer.author, 48),
            datetime.fromtimestamp(peer.since, UTC).strftime("%d %b %H:%M:%S"),
            plain(peer.model or "?", 32),
            f"{peer.weights:,}" if peer.weights else "–",
            plain(", ".join(peer.sources) or "?", 48),
            "–" if peer.round is None else str(peer.round),
            "–" if peer.rounds_per_minute is None else f"{peer.rounds_per_minute:.1f}",
        )
    return rows
