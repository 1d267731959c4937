"""Kills, as `python killing.py anywhere KILLS SEED` or `everywhere`: a forked child keeps rounds as nodes do
and ends itself with SIGKILL at the n-th thing it does. After each kill all that was done must be found again.

A process of its own, because forking a test runner a thousand times is slow; in memory, because the disk is
not what is tested: a kill leaves what was written, whether the disk has it yet or not.
"""

import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from waggledance.lasting import Belongs, Checkpoints, Found, Record
from waggledance.rollout import Author, Group, Rollout, ScoredGroup
from waggledance.task import Digest, SourceName, Task

BELONGS = Belongs("tiny", "grpo")
ROLLOUTS = (Rollout("<answer>5</answer>", True, 4, -0.5, (1, 2, 3)), Rollout("", False, 1, -2.0))
IN_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of its own is made there
ROUNDS_A_LIFE = 8
STEPS_A_LIFE = 5000
"""About as many calls and returns as that many rounds make."""


def record(round_number: int) -> Record:
    task = Task(SourceName("arithmetic"), round_number, "2 + 3", "number", "5")
    group = Group(Author("bee"), round_number, task.source, Digest("0a"), round_number, ROLLOUTS)
    small = {"appetite": bytes([round_number % 256])}
    return Record(round_number, (ScoredGroup(group, task, (1.0, 0.0), 0.5),), (group,), (7, 2**63), small)


def parts(round_number: int) -> dict[str, bytes]:
    return {"pool": round_number.to_bytes(4, "big") * 100}


def run_to(store: Checkpoints, last: int, *, after: int = -1, whole_every: int = 3) -> None:
    """Rounds as a node keeps them: a record each, and a whole checkpoint at 0 and every third."""
    for number in range(after + 1, last + 1):
        if number:
            store.record(record(number))
        if number % whole_every == 0:
            store.write_whole(number, BELONGS, parts(number), {})


def newest(folder: Path) -> tuple[int, Found]:
    """The round that a restart begins after. What it finds must be right in every byte."""
    found = Checkpoints(folder).find()
    assert found is not None
    assert found.parts == parts(found.round)
    numbers = range(found.round + 1, found.round + 1 + len(found.records))
    assert list(found.records) == [record(number) for number in numbers]
    return found.round + len(numbers), found


def killed_at(step: int, work: Callable[[], None]) -> bool:
    """Does the work in a child that is killed at its n-th call or return; whether it got so far."""
    child = os.fork()
    if child == 0:
        left = step

        def count(_frame: FrameType, _event: str, _about: object) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            sys.setprofile(count)
            work()
            sys.setprofile(None)
        except BaseException:  # noqa: BLE001 - a child must not run on into its parent's tests
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, f"the child failed at step {step}"
    return os.WIFSIGNALED(status)


def anywhere(folder: Path, kills: int, seed: int) -> tuple[int, int]:
    """Kill after kill in one folder, as a run would meet them: how many died, and the rounds they did."""
    draw, told, dead, reached = random.Random(seed), folder / "told", 0, 0
    store = Checkpoints(folder / "run")
    run_to(store, 0)
    store.close()

    def life() -> None:
        store = Checkpoints(folder / "run")
        store.find()
        store.resume()
        for number in range(reached + 1, reached + 1 + ROUNDS_A_LIFE):
            run_to(store, number, after=number - 1)
            told.write_text(str(number))
        store.close()

    told.write_text("0")
    for _ in range(kills):
        dead += killed_at(draw.randrange(STEPS_A_LIFE), life)
        last, found = newest(folder / "run")
        assert found.damaged == ()
        done = max(reached, int(told.read_text() or last))  # killed while it told, or before
        assert done <= last <= done + 1, f"round {done} was done, a restart would go on after {last}"
        reached = last
    return dead, reached


def everywhere(folder: Path) -> int:
    """One write, killed at its first step, its second, …; how many steps it has."""
    store = Checkpoints(folder / "start")
    run_to(store, 5)
    store.close()
    run, step, killed = folder / "run", 0, True

    def write() -> None:
        again = Checkpoints(run)
        again.find()
        again.write_whole(6, BELONGS, parts(6), {})
        again.close()

    while killed:
        shutil.copytree(folder / "start", run)
        killed = killed_at(step, write)
        last, found = newest(run)
        assert last in (5, 6)
        assert found.damaged == ()
        assert killed or found.round == 6
        shutil.rmtree(run)
        step += 1
    return step


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as place:
        if sys.argv[1] == "anywhere":
            sys.stdout.write("{} {}".format(*anywhere(Path(place), int(sys.argv[2]), int(sys.argv[3]))))
        else:
            sys.stdout.write(str(everywhere(Path(place))))
