"""The page beside a verb: its flags, and serving it while the verb is at work."""

import argparse
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from waggledance.config import PageConfig, check_config
from waggledance.view.page import Page, PagePlace
from waggledance.view.panels import Swarms
from waggledance.view.terminal import DemoView

LINGER_S = 0.5


def add_page_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--page",
        dest="page.port",
        nargs="?",
        const="0",
        metavar="PORT",
        help="serve a page about it (without PORT: the usual one, or any that is free)",
    )


def add_page_flags(parser: argparse.ArgumentParser) -> None:
    """Of a verb that does not take all of a node's settings."""
    add_page_flag(parser)
    parser.add_argument(
        "--page.host", dest="page.host", metavar="V", help="address to serve it at (127.0.0.1)"
    )
    parser.add_argument("--page.token", dest="page.token", metavar="V", help="what to ask for")


def page_config(options: argparse.Namespace) -> PageConfig:
    given = {name: getattr(options, f"page.{name}") for name in ("port", "host", "token")}
    return check_config({"page": {name: value for name, value in given.items() if value is not None}}).page


@contextmanager
def served(run: str, wanted: PageConfig, pictures: Sequence[Path] = ()) -> Generator[Page | None]:
    if wanted.port < 0:
        yield None
        return
    with Page(run, PagePlace(wanted.port, wanted.host, wanted.token), pictures) as page:
        yield page


@dataclass(frozen=True, slots=True)
class Looks:
    """The terminal, and the page beside it where one is wanted."""

    terminal: DemoView
    page: Page | None

    def show(self, swarms: Swarms, elapsed_seconds: float, silent_seconds: float = 0.0) -> None:
        self.terminal.show(swarms, elapsed_seconds, silent_seconds=silent_seconds)
        if self.page:
            self.page.show(swarms, elapsed_seconds, silent_seconds=silent_seconds)

    def linger(self) -> None:
        """Whoever looks at the page goes on looking after the end, until Ctrl-C."""
        while self.page:
            time.sleep(LINGER_S)


@contextmanager
def looking(run: str, wanted: PageConfig, pictures: Sequence[Path] = ()) -> Generator[Looks]:
    with served(run, wanted, pictures) as page, DemoView(note=page.note if page else "") as terminal:
        yield Looks(terminal, page)
