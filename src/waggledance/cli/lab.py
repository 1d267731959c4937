"""`waggle lab FILE`: an experiment with many nodes on this machine.

Runs every configuration with every seed, keeps each trial's result as soon as it is there, goes on where it
was stopped, and ends with results.json, table.md and figure.png.
"""

import argparse
import multiprocessing
import os
import platform
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from waggledance import __version__
from waggledance.cli.verb import add_verb
from waggledance.errors import NodeError, UsageError
from waggledance.lab.bank import Bank, make_bank, names_of, read_bank, write_bank
from waggledance.lab.folder import Folder, unfinished, write
from waggledance.lab.plan import Plan, TrialPlan, read_plan, trials
from waggledance.lab.results import Results, results_of, write_table
from waggledance.tasks import open_sources

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

SHOW_EVERY_S = 10.0

DESCRIPTION = """An experiment with many nodes on this machine: every configuration of a file with every seed.
Each finished trial is kept, so a run that was stopped goes on where it was. Ends with results.json, table.md
and figure.png in the folder."""
EXAMPLE = """example:
  waggle lab lab/smoke.toml
  waggle lab lab/paper.toml --dir runs/paper --jobs 2
  waggle lab lab/paper.toml --dir runs/paper --device cuda --together 20"""


def add_parser(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "lab",
        "run an experiment: configurations, seeds, tables and figures",
        description=DESCRIPTION,
        example=EXAMPLE,
        run=run,
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="the experiment, in TOML")
    parser.add_argument("--dir", type=Path, help="where to write and go on (default: runs/lab-FILE)")
    parser.add_argument("--seeds", help="these seeds instead of the file's, as in 1,2,3")
    parser.add_argument("--rounds", type=int, help="so many rounds instead of the file's")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (cpu)")
    parser.add_argument("--jobs", type=int, help="processes (default: one a core on a cpu, else 1)")
    parser.add_argument("--together", type=int, help="trials in one batch (default: 1 on a cpu, else all)")
    parser.add_argument("--prepare", type=Path, metavar="OUT", help="only write the tasks, into this file")
    parser.add_argument("--prepared", type=Path, metavar="IN", help="take the tasks from this file")
    parser.add_argument("--no-report", action="store_true", help="run the trials and stop")


def run(options: argparse.Namespace) -> int:
    plan = _plan(options)
    if options.prepare is not None:
        write(options.prepare, write_bank(_made_bank(plan)))
        return 0
    folder = Folder(options.dir or Path("runs") / f"lab-{options.file.stem}")
    pending = unfinished(folder, trials(plan))
    if pending:
        bank = folder.bank() or (read_bank(options.prepared) if options.prepared else _made_bank(plan))
        folder.keep_bank(bank)
        _run_all(options, plan, folder, pending)
    if options.no_report:
        return 0
    results = _report(plan, folder, options.file.stem)
    if options.json:
        print(msgspec.json.encode(results).decode())
    else:
        print(write_table(results))
        print(f"results: {folder.path}/results.json, table.md, figure.png")
    return 0


def _plan(options: argparse.Namespace) -> Plan:
    for name, least in (("rounds", 1), ("jobs", 1), ("together", 1)):
        value = getattr(options, name)
        if value is not None and value < least:
            raise UsageError(f"--{name} {value}: take {least} or more")
    plan = read_plan(options.file)
    if options.rounds is not None:
        plan = msgspec.structs.replace(plan, rounds=options.rounds)
    if options.seeds is not None:
        plan = msgspec.structs.replace(plan, seeds=_seeds(options.seeds))
    return plan


def _seeds(words: str) -> tuple[int, ...]:
    parts = words.split(",")
    if not all(part.strip().isdecimal() and int(part) < 2**31 for part in parts):
        raise UsageError(f"--seeds {words}: write whole numbers with commas between them, as in 1,2,3")
    return tuple(dict.fromkeys(map(int, parts)))


def _made_bank(plan: Plan) -> Bank:
    seats = [seat for trial in trials(plan) for seat in trial.seats]
    words = [word for seat in seats for word in seat.config.tasks]
    words += [word for seat in seats if seat.warm_up for word in seat.warm_up.tasks]
    sources = open_sources(list(dict.fromkeys(words)))
    assert [source.name for source in sources] == names_of(words)
    print(f"making {len(sources)} × {plan.tasks_per_source} tasks", file=sys.stderr, flush=True)
    return make_bank(sources, plan.tasks_per_source, plan.heldout_per_source)


def _run_all(options: argparse.Namespace, plan: Plan, folder: Folder, pending: Sequence[TrialPlan]) -> None:
    on_cpu = options.device == "cpu"
    jobs = options.jobs or (min(os.cpu_count() or 1, len(pending)) if on_cpu else 1)
    together = options.together or (1 if on_cpu or not plan.stacked else -(-len(pending) // jobs))
    heats = [list(pending[start : start + together]) for start in range(0, len(pending), together)]
    progress = Progress(sum(_work_of(heat) for heat in heats))
    if jobs == 1:
        for heat in heats:
            for done in run_heat(heat, folder, stacked=plan.stacked, device=options.device):
                progress.add(done)
        return
    with Workers(heats, folder, jobs, plan, options.device) as workers:
        for done in workers.work():
            progress.add(done)


def _work_of(heat: Sequence[TrialPlan]) -> int:
    """Node-rounds."""
    return sum(trial.rounds * len(trial.seats) for trial in heat)


def run_heat(heat: Sequence[TrialPlan], folder: Folder, *, stacked: bool, device: str) -> Iterator[int]:
    """Yields the node-rounds done since it last did; keeps the results at the end."""
    from waggledance.cli.minds import open_thinkers
    from waggledance.lab.heat import Heat

    bank = folder.bank()
    assert bank is not None, "kept before any heat"
    seats = [seat for trial in heat for seat in trial.seats]
    running = Heat(heat, bank, open_thinkers(seats, bank, stacked=stacked, device=device))
    for round_ in running.run():
        yield len(seats) if round_ else 0
    for trial, result in zip(heat, running.results(), strict=True):
        folder.keep_result(trial, result)


class Progress:
    """How far it is and how long it takes, on standard error."""

    def __init__(self, whole: int) -> None:
        self._whole = whole
        self._done = 0
        self._start = self._shown = time.monotonic()

    def add(self, done: int) -> None:
        self._done += done
        now = time.monotonic()
        if self._done == 0:  # the first round has not come yet
            self._start = self._shown = now
        if now - self._shown < SHOW_EVERY_S and self._done < self._whole:
            return
        self._shown = now
        rate = self._done / max(1e-9, now - self._start)
        left = (self._whole - self._done) / max(1e-9, rate)
        print(
            f"{self._done / self._whole:6.1%}  {self._done:,} of {self._whole:,} node-rounds, {rate:.1f} a "
            f"second, {_minutes(left)} left",
            file=sys.stderr,
            flush=True,
        )


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


class Workers:
    """Processes that run heats, one after the other each. However this one ends, so do they."""

    def __init__(
        self, heats: Sequence[list[TrialPlan]], folder: Folder, jobs: int, plan: Plan, device: str
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self._news: Queue[int] = context.Queue()
        shares = [list(heats[start::jobs]) for start in range(jobs)]
        self._running = [
            context.Process(
                target=_work, args=(share, folder.path, plan.stacked, device, self._news), daemon=True
            )
            for share in shares
            if share
        ]

    def __enter__(self) -> "Workers":
        for worker in self._running:
            worker.start()
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._running:
            worker.terminate()
            worker.join()

    def work(self) -> Iterator[int]:
        while any(worker.is_alive() for worker in self._running) or not self._news.empty():
            failed = next((worker for worker in self._running if worker.exitcode), None)
            if failed is not None:
                raise NodeError(f"a lab process ended with code {failed.exitcode}; its last lines say why")
            try:
                yield self._news.get(timeout=0.2)
            except queue.Empty:
                continue


def _work(
    heats: Sequence[list[TrialPlan]], path: Path, stacked: bool, device: str, news: "Queue[int]"
) -> None:
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process is told, and ends this one
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    for heat in heats:
        for done in run_heat(heat, Folder(path), stacked=stacked, device=device):
            news.put(done)


def _end_with_parent() -> None:
    """However it ends."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _report(plan: Plan, folder: Folder, name: str) -> Results:
    found = [result for trial in trials(plan) if (result := folder.result(trial)) is not None]
    results = results_of(name, __version__, _machine(), plan.silos, found)
    from waggledance.lab.figure import MOST_CURVES, draw_figure
    from waggledance.lab.map import draw_map

    write(folder.path / "results.json", msgspec.json.encode(results))
    write(folder.path / "table.md", write_table(results).encode())
    compared = results.comparisons
    mapped = len(plan.configurations) > MOST_CURVES or len({one.silo for one in compared}) > 1
    drawn = draw_map(results, plan.questions) if mapped and compared else draw_figure(name, found)
    write(folder.path / "figure.png", drawn)
    return results


def _machine() -> str:
    return f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
