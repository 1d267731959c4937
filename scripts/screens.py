"""Makes the pictures of terminal and page that the README shows, from a run's journals.

    make screens                      # a fresh demo, then its pictures
    python scripts/screens.py RUN     # of a run that is there

Chromium draws both: the page as it is, the terminal as the SVG that rich makes of the very lines it prints.
"""

import argparse
import io
import shutil
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, sync_playwright
from rich.console import Console

from waggledance.cli.watching import Replay, need_journals
from waggledance.view.page import Page, PagePlace
from waggledance.view.tally import seconds_since_start
from waggledance.view.terminal import render

DOCS = Path(__file__).parents[1] / "docs" / "screens"
PAGES: tuple[tuple[str, int, int, Literal["light", "dark"]], ...] = (
    ("page", 1280, 1180, "light"),
    ("page-dark", 1280, 1180, "dark"),
    ("page-tablet", 820, 1100, "light"),
    ("page-phone", 390, 844, "light"),
)
TERMINALS = (("terminal-small", 80, 24), ("terminal", 110, 36), ("terminal-wide", 170, 44))
FRACTION = 1.0
"""Of the run that has happened in the pictures: all, so that nobody is compared in the middle of the way."""
SETTLED_MS = 1500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--out", type=Path, default=DOCS)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    replay = Replay(need_journals(options.run))
    start = replay.started_at
    replay.read_until(float("inf"))
    end = max(node.seen_at for swarm in replay.states.values() for node in swarm.nodes.values())
    replay = Replay(need_journals(options.run))
    at = start + FRACTION * (end - start)
    replay.read_until(at)
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        _pages(browser, replay, at, options.run.resolve().name, options.out)
        _terminals(browser, replay, at, options.out)
        browser.close()


def _pages(browser: Browser, replay: Replay, at: float, name: str, out: Path) -> None:
    with Page(name, PagePlace()) as page:
        page.show(replay.states, seconds_since_start(replay.states.values(), at))
        for file, width, height, scheme in PAGES:
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
            tab = context.new_page()
            tab.goto(page.address)
            tab.wait_for_selector("#rewards-chart canvas")
            tab.wait_for_timeout(SETTLED_MS)
            tab.screenshot(path=out / f"{file}.png")
            context.close()


def _terminals(browser: Browser, replay: Replay, at: float, out: Path) -> None:
    elapsed = seconds_since_start(replay.states.values(), at)
    for file, width, height in TERMINALS:
        console = Console(
            record=True,
            width=width,
            height=height,
            file=io.StringIO(),
            force_terminal=True,
            color_system="truecolor",
        )
        console.print(render(replay.states, width, height, elapsed))
        svg = console.export_svg(title="waggle watch")
        tab = browser.new_page(viewport={"width": 12 * width, "height": 26 * height})
        tab.set_content(svg)
        tab.locator("svg").screenshot(path=out / f"{file}.png")
        tab.close()


if __name__ == "__main__":
    main()
