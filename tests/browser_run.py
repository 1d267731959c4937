"""A real browser for tests: the system's Chromium, and what it complains about."""

import contextlib
import shutil
from collections.abc import Generator
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Literal

from playwright.sync_api import Browser, Dialog, sync_playwright
from playwright.sync_api import Page as Tab

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WAIT_MS = 30_000
AXE = (resources.files("axe_playwright_python") / "axe.min.js").read_text()


@dataclass
class Seen:
    """What a page does that it should not, and whom it asks."""

    complaints: list[str] = field(default_factory=list[str])
    asked: set[str] = field(default_factory=set[str])


@contextlib.contextmanager
def browser() -> Generator[Browser]:
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield opened
        opened.close()


@contextlib.contextmanager
def tab(
    opened: Browser, address: str, width: int = 1280, scheme: Literal["light", "dark"] = "light"
) -> Generator[tuple[Tab, Seen]]:
    context = opened.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page, seen = context.new_page(), Seen()
    page.set_default_timeout(WAIT_MS)

    def dismissed(dialog: Dialog) -> None:
        seen.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    page.on("console", lambda message: seen.complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: seen.complaints.append(f"error: {error}"))
    page.on("dialog", dismissed)
    page.on("request", lambda request: seen.asked.add(request.url.partition("?")[0]))
    page.goto(address)
    page.wait_for_selector("#state[data-state=live]")
    yield page, seen
    context.close()


def faults(page: Tab) -> list[str]:
    """What axe finds serious or worse, a line each."""
    page.evaluate(AXE)
    found: Any = page.evaluate("axe.run({resultTypes: ['violations']})")
    return [
        f"{one['impact']} {one['id']}: {one['nodes'][0]['html'][:160]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]
