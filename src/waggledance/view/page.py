"""The page: a view that a browser looks at, served from a thread of its own.

Used like the terminal's view: open it, call `show` as often as is pleasant, close it. On loopback it answers
this machine; elsewhere it asks for a token, which its address carries. No request leaves the machine.
"""

import asyncio
import ipaddress
import secrets
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import uvicorn

from waggledance.errors import UsageError
from waggledance.view.guard import Guard
from waggledance.view.routes import application
from waggledance.view.scene import Swarms
from waggledance.view.stage import Stage

PORT = 8033
LOOPBACK = "127.0.0.1"
CLOSE_S = 5.0


@dataclass(frozen=True, slots=True)
class PagePlace:
    """Where it is served. Port 0: the usual one, or any that is free."""

    port: int = 0
    host: str = LOOPBACK
    token: str | None = None
    """Asked of whoever looks; where none is given and the host is not loopback, one is drawn."""


class Page:
    def __init__(self, run: str, place: PagePlace, pictures: Sequence[Path] = ()) -> None:
        self.stage = Stage(run)
        self._socket = _bound(place)
        host, self.port = self._socket.getsockname()[:2]
        open_to_all = not ipaddress.ip_address(host).is_loopback
        token = place.token or (secrets.token_urlsafe(24) if open_to_all else None)
        self.address = _address(_reachable(host), self.port, token)
        self._guard = Guard(_names(place.host), token)
        self._pictures = tuple(pictures)
        self._thread = threading.Thread(target=self._serve, name="page", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing: asyncio.Event | None = None
        self._server: uvicorn.Server | None = None
        self._started = threading.Event()

    @property
    def note(self) -> str:
        return f"page: {self.address}"

    def __enter__(self) -> "Page":
        self._thread.start()
        self._started.wait(CLOSE_S)
        return self

    def show(
        self,
        swarms: Swarms,
        elapsed_seconds: float,
        left_seconds: float | None = None,
        silent_seconds: float = 0.0,
    ) -> None:
        self.stage.show(swarms, elapsed_seconds, left_seconds, silent_seconds)

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._thread.is_alive() and self._loop and self._closing and self._server:
            self._loop.call_soon_threadsafe(self._closing.set)
            self._server.should_exit = True
        self._thread.join(CLOSE_S)
        self._socket.close()

    def _serve(self) -> None:
        asyncio.run(self._served())

    async def _served(self) -> None:
        self._loop, self._closing = asyncio.get_running_loop(), asyncio.Event()
        app = application(self.stage, self._guard, self._pictures, self._closing)
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=1,
            )
        )
        self._started.set()
        await self._server.serve(sockets=[self._socket])


def _bound(place: PagePlace) -> socket.socket:
    """The usual port gives way to any free one; a port that was asked for does not."""
    if place.port:
        return _listening(place, place.port)
    try:
        return _listening(place, PORT)
    except UsageError:
        return _listening(place, 0)


def _listening(place: PagePlace, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(place.host, port, type=socket.SOCK_STREAM)
        listener = socket.socket(found[0][0], socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(found[0][4][:2])
            listener.listen(128)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise UsageError(
            f"page {place.host}:{port}: {error.strerror}; name another port, or an address of this machine"
        ) from error
    return listener


def _names(host: str) -> frozenset[str]:
    own = {"localhost", "127.0.0.1", "::1", host.lower(), socket.gethostname().lower()}
    return frozenset(own - {"0.0.0.0", "::"})  # noqa: S104 - a name to refuse, nothing is bound to it


def _reachable(host: str) -> str:
    return socket.gethostname() if ipaddress.ip_address(host).is_unspecified else host


def _address(host: str, port: int, token: str | None) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}/" + (f"?token={token}" if token else "")
