"""A crowd: routers and node processes of this machine, started and ended together, and asked together.

Each process ends with its standard input, so whatever ends this one ends them all.
"""

import contextlib
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

import msgspec

from waggledance.bench.resident import READY, Report, Settings
from waggledance.errors import NodeError
from waggledance.swarm.endpoint import free_loopback_endpoint
from waggledance.swarm.founding import Founding, cut, found, reaching
from waggledance.swarm.ticket import Role, write_ticket

ROUTERS = 3
PATIENCE_S = 120.0
"""How long a process may take to start or to answer on a busy machine."""
LEAVE_S = 5.0


class Crowd:
    """Leaving the context ends every process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self._logs: dict[int, Path] = {}
        self.nodes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "Crowd":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(self, settings: Settings) -> None:
        log = self._folder / f"{settings.name}.log"
        with log.open("wb") as said:
            process = subprocess.Popen(
                [sys.executable, "-m", "waggledance.bench.resident"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                cwd=self._folder,
                bufsize=0,
                start_new_session=True,  # a Ctrl-C is for whoever started them all
            )
        self._processes.append(process)
        self._logs[process.pid] = log
        if settings.listen is None:
            self.nodes.append(process)
        self._write(process, msgspec.json.encode(settings) + b"\n")

    def ready(self, tell: Callable[[str], None]) -> None:
        """Waits until all that were started are there."""
        for number, process in enumerate(self._processes, 1):
            line = self._read(process)
            assert line.strip() == READY.encode(), line
            if number % 25 == 0:
                tell(f"{number} of {len(self._processes)} processes are up")

    def ask(self, word: str) -> list[Report]:
        """The word to all nodes at once, then their answers."""
        for node in self.nodes:
            self._write(node, f"{word}\n".encode())
        return [msgspec.json.decode(self._read(node), type=Report) for node in self.nodes]

    def check(self) -> None:
        """A process that is gone is an error."""
        for process in self._processes:
            if process.poll() is not None:
                raise NodeError(self._why(process))

    def end(self) -> None:
        for process in self._processes:
            with contextlib.suppress(OSError):
                if process.stdin is not None:
                    process.stdin.close()
        deadline = time.monotonic() + LEAVE_S
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
        for process in self._processes:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        self._processes.clear()
        self.nodes.clear()

    def _read(self, process: "subprocess.Popen[bytes]") -> bytes:
        assert process.stdout is not None
        parts: list[bytes] = []
        deadline = time.monotonic() + PATIENCE_S
        while not (parts and parts[-1].endswith(b"\n")):
            wait_s = max(0.0, deadline - time.monotonic())
            more = b""
            if select.select([process.stdout], [], [], wait_s)[0]:
                more = process.stdout.read(1 << 20) or b""
            if not more:
                raise NodeError(self._why(process))
            parts.append(more)
        return b"".join(parts)

    def _write(self, process: "subprocess.Popen[bytes]", words: bytes) -> None:
        assert process.stdin is not None
        try:
            process.stdin.write(words)
        except BrokenPipeError as error:
            raise NodeError(self._why(process)) from error

    def _why(self, process: "subprocess.Popen[bytes]") -> str:
        log = self._logs[process.pid]
        ended = "does not answer" if process.poll() is None else f"ended with code {process.returncode}"
        said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        why = said[-1] if said else "it said nothing; is there memory for all? take fewer --nodes"
        return f"the process of {log.stem} {ended}: {why}"


@contextlib.contextmanager
def crowd(
    nodes: int, settings: Settings, tell: Callable[[str], None], routers: int = ROUTERS
) -> Generator[Crowd]:
    """So many nodes over routers, every one like `settings` but for its name, folder, ticket and phase."""
    with tempfile.TemporaryDirectory(prefix="waggle-bench-") as name, Crowd(Path(name)) as started:
        folder = Path(name)
        endpoints = [free_loopback_endpoint() for _ in range(routers)]
        founding = reaching(found("bench"), lan=False, routers=tuple(endpoints), authority="")
        router_ticket = write_ticket(cut(founding, Role.ROUTER))
        for place, endpoint in enumerate(endpoints):
            started.start(
                msgspec.structs.replace(
                    settings,
                    name=f"router{place}",
                    folder=name,
                    ticket=router_ticket,
                    listen=endpoint,
                )
            )
        for place in range(nodes):
            home = folder / f"n{place}"
            home.mkdir()
            started.start(
                msgspec.structs.replace(
                    settings,
                    name=f"n{place}",
                    folder=str(home),
                    ticket=_ticket(founding, endpoints, place),
                    phase=place / nodes,
                )
            )
        started.ready(tell)
        yield started


def _ticket(founding: Founding, endpoints: Sequence[str], place: int) -> str:
    """A member's; its routers in an order of its own, so that no router gets all the nodes."""
    first = place % len(endpoints)
    ordered = (*endpoints[first:], *endpoints[:first])
    return write_ticket(cut(msgspec.structs.replace(founding, routers=ordered)))
