"""A page as it is served, for tests: opened on any port, asked over real sockets."""

import contextlib
import http.client
import json
from collections.abc import Generator, Iterator
from typing import Any

from waggledance.view.page import Page, PagePlace
from waggledance.view.scene import Swarms

WAIT_S = 30.0


@contextlib.contextmanager
def opened(swarms: Swarms, **place: Any) -> Generator[Page]:
    with Page("a run", PagePlace(**place)) as page:
        page.show(swarms, 60.0)
        yield page


def ask(
    page: Page, path: str, host: str | None = None, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers (in lower case) and body. `host` is what the request claims to ask for."""
    link = http.client.HTTPConnection("127.0.0.1", page.port, timeout=WAIT_S)
    try:
        link.putrequest(method, path, skip_host=True)
        link.putheader("Host", f"127.0.0.1:{page.port}" if host is None else host)
        for name, value in headers.items():
            link.putheader(name.replace("_", "-"), value)
        link.endheaders()
        answer = link.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        link.close()


@contextlib.contextmanager
def listening(page: Page) -> "Generator[Iterator[tuple[str, Any]]]":
    """The stream's events as they come: name and what it holds."""
    link = http.client.HTTPConnection("127.0.0.1", page.port, timeout=WAIT_S)
    link.request("GET", "/stream")
    answer = link.getresponse()
    assert answer.status == 200

    def events() -> Iterator[tuple[str, Any]]:
        name = ""
        while line := answer.readline():
            if line.startswith(b"event: "):
                name = line[7:].strip().decode()
            elif line.startswith(b"data: "):
                yield name, json.loads(line[6:])

    try:
        yield events()
    finally:
        link.close()
