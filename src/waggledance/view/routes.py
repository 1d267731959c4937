"""The page's addresses: the page itself, its stream, pictures, metrics and health.

A stage and a guard in, an ASGI application out. Every answer carries the guard's headers; every request is
asked for its Host, and for the token where there is one.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from http import HTTPStatus
from importlib import resources
from pathlib import Path

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from waggledance.view.guard import COOKIE, SECURITY_HEADERS, Guard
from waggledance.view.metrics import CONTENT_TYPE, exposition, health
from waggledance.view.stage import Reader, Stage

EVERY_S = 1.0
READERS_LIMIT = 64
STATIC = {
    "page.js": "text/javascript",
    "theme.js": "text/javascript",
    "page.css": "text/css",
    "uPlot.iife.min.js": "text/javascript",
    "uPlot.min.css": "text/css",
    "uPlot.LICENSE": "text/plain",
    "icon.svg": "image/svg+xml",
}
MONTH_S = 30 * 24 * 3600

Answer = Callable[[Request], Awaitable[Response]]


def application(stage: Stage, guard: Guard, pictures: Sequence[Path], closing: asyncio.Event) -> Starlette:
    answers = _Answers(stage, pictures, closing)
    routes = (
        ("/", answers.page),
        ("/static/{name}", answers.static),
        ("/stream", answers.stream),
        ("/metrics", answers.metrics),
        ("/health", answers.health),
        ("/pictures", answers.list_pictures),
        ("/pictures/{name}", answers.picture),
    )
    return Starlette(routes=[Route(path, _guarded(guard, answer)) for path, answer in routes])


class _Answers:
    def __init__(self, stage: Stage, pictures: Sequence[Path], closing: asyncio.Event) -> None:
        self._stage = stage
        self._pictures = {picture.stem: picture for picture in pictures}
        self._closing = closing
        self._readers = 0

    async def page(self, request: Request) -> Response:
        if "token" not in request.query_params:
            return Response(_static("index.html"), media_type="text/html")
        moved = RedirectResponse("/", HTTPStatus.SEE_OTHER)  # out of the address bar, into a cookie
        token = request.query_params["token"]
        moved.set_cookie(COOKIE, token, MONTH_S, httponly=True, samesite="strict")
        return moved

    async def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in STATIC:
            return PlainTextResponse("no such file", HTTPStatus.NOT_FOUND)
        return Response(_static(name), media_type=STATIC[name])

    async def stream(self, _request: Request) -> Response:
        if self._readers >= READERS_LIMIT:
            return PlainTextResponse(f"{READERS_LIMIT} are looking already", HTTPStatus.SERVICE_UNAVAILABLE)
        return StreamingResponse(self._told(), media_type="text/event-stream")

    async def _told(self) -> AsyncGenerator[bytes]:
        reader = Reader()
        self._readers += 1
        try:
            while not self._closing.is_set():
                news = await run_in_threadpool(self._stage.news, reader)
                # A comment where nothing is new: it finds out who has gone.
                yield b"".join(map(_event, news)) or b": still here\n\n"
                await _either(self._closing, EVERY_S)
        finally:
            self._readers -= 1

    async def metrics(self, _request: Request) -> Response:
        stage = self._stage
        return Response(
            await run_in_threadpool(exposition, stage.swarms, stage.silent_seconds),
            headers={"content-type": CONTENT_TYPE},
        )

    async def health(self, _request: Request) -> Response:
        found = health(self._stage.swarms, self._stage.silent_seconds)
        status = HTTPStatus.OK if found.well else HTTPStatus.SERVICE_UNAVAILABLE
        return Response(msgspec.json.encode(found), status, media_type="application/json")

    async def list_pictures(self, _request: Request) -> Response:
        return JSONResponse([name for name, path in self._pictures.items() if path.is_file()])

    async def picture(self, request: Request) -> Response:
        path = self._pictures.get(request.path_params["name"])
        if path is None or not path.is_file():
            return PlainTextResponse("no such picture", HTTPStatus.NOT_FOUND)
        return Response(path.read_bytes(), media_type="image/png")


def _guarded(guard: Guard, answer: Answer) -> Answer:
    async def guarded(request: Request) -> Response:
        refused = guard.refuses(request.headers, request.cookies, request.query_params)
        if refused is None:
            response = await answer(request)
        else:
            response = PlainTextResponse(f"{refused.value} {refused.phrase}", refused)
        response.headers.update(SECURITY_HEADERS)
        return response

    return guarded


def _event(news: tuple[str, bytes]) -> bytes:
    name, encoded = news
    return b"event: " + name.encode() + b"\ndata: " + encoded + b"\n\n"


async def _either(event: asyncio.Event, seconds: float) -> None:
    """Until the event or for that long."""
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return


def _static(name: str) -> bytes:
    return (resources.files("waggledance.view") / "static" / name).read_bytes()
