"""A crowd: routers and node processes of this machine, started and ended together, and asked together."""

import contextlib
import sys
import tempfile
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

import msgspec

from waggledance.bench.child import Child, end
from waggledance.bench.resident import READY, Report, Settings
from waggledance.swarm.endpoint import free_loopback_endpoint
from waggledance.swarm.founding import Founding, cut, found, reaching
from waggledance.swarm.ticket import Role, write_ticket

ROUTERS = 3


class Crowd:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._all: list[Child] = []
        self._nodes: list[Child] = []

    def start(self, settings: Settings) -> None:
        child = Child(settings.name, (sys.executable, "-m", "waggledance.bench.resident"), self._folder)
        self._all.append(child)
        if settings.listen is None:
            self._nodes.append(child)
        child.tell(msgspec.json.encode(settings))

    def ready(self, tell: Callable[[str], None]) -> None:
        """Waits until all that were started are there."""
        for number, child in enumerate(self._all, 1):
            line = child.answer()
            assert line == READY.encode(), line
            if number % 25 == 0:
                tell(f"{number} of {len(self._all)} processes are up")

    def ask(self, word: str) -> list[Report]:
        """The word to all nodes at once, then their answers."""
        for node in self._nodes:
            node.tell(word.encode())
        return [msgspec.json.decode(node.answer(), type=Report) for node in self._nodes]

    def check(self) -> None:
        """A process that is gone is an error."""
        for child in self._all:
            child.check()

    def end(self) -> None:
        end(self._all)


@contextlib.contextmanager
def crowd(
    nodes: int, settings: Settings, tell: Callable[[str], None], routers: int = ROUTERS
) -> Generator[Crowd]:
    """So many nodes over routers, every one like `settings` but for its name, folder, ticket and phase.
    However it is left, no process is left."""
    with tempfile.TemporaryDirectory(prefix="waggle-bench-") as name, contextlib.ExitStack() as ends:
        folder = Path(name)
        started = Crowd(folder)
        ends.callback(started.end)
        endpoints = [free_loopback_endpoint() for _ in range(routers)]
        founding = reaching(found("bench"), lan=False, routers=tuple(endpoints), authority="")
        ticket = write_ticket(cut(founding, Role.ROUTER))
        for place, endpoint in enumerate(endpoints):
            router = {"name": f"router{place}", "folder": name, "ticket": ticket, "listen": endpoint}
            started.start(msgspec.structs.replace(settings, **router))
        for place in range(nodes):
            home = folder / f"n{place}"
            home.mkdir()
            node = {"name": home.name, "folder": str(home), "ticket": _ticket(founding, endpoints, place)}
            started.start(msgspec.structs.replace(settings, **node, phase=place / nodes))
        started.ready(tell)
        yield started


def _ticket(founding: Founding, endpoints: Sequence[str], place: int) -> str:
    """A member's; its routers in an order of its own, so that no router gets all the nodes."""
    first = place % len(endpoints)
    ordered = (*endpoints[first:], *endpoints[:first])
    return write_ticket(cut(msgspec.structs.replace(founding, routers=ordered)))
