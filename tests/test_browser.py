"""The page in a real browser: it draws what there is, does what a person does, obeys no text, stays quick.

`apt-get install chromium` gives the browser; without one these are left out.
"""

from collections.abc import Generator
from typing import Literal

import pytest
from playwright.sync_api import Browser, expect

from browser_run import CHROMIUM, browser, faults, tab
from page_run import opened
from view_run import entries, swarm_state, told
from waggledance.events import Evaluated, Failed, Met, Said, Sampled, Started, Verified
from waggledance.rollout import Author
from waggledance.view.scene import Swarms
from waggledance.view.state import SwarmState, fold_all

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]

N0, BOB = Author("n0"), Author("bob.abcdefgh234567ab")
WIDTHS = (1280, 820, 390)
INK = """(box) => { const canvas = document.querySelector(box + " canvas");
  return canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.some((x) => x > 0); }"""

ELEMENTS = "[...new Set([...document.querySelectorAll('*')].map((element) => element.localName))]"
ELAPSED = "(seconds) => latest.head.elapsed_seconds === seconds"

NOTHING: Swarms = {}


def demo(rounds: int = 40) -> Swarms:
    return {"silo": swarm_state(rounds, together=False), "swarm": swarm_state(rounds)}


def alone() -> Swarms:
    more = [
        told(N0, 41, Met(BOB, "smollm2", 10**8, "0", {})),
        told(N0, 41, Sampled(4, 2, {BOB: 2}, 9, 1, {"digest": 3}, {BOB: {"digest": 3}}, 5)),
        told(N0, 41, Said(BOB, "easy:gcd", "gcd of 4 and 6?", "two", 0.0)),
    ]
    return {"run": fold_all(swarm_state(40, nodes=1), more)}


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever changed is told ten times a second, so that no test waits for the next."""
    monkeypatch.setattr("waggledance.view.routes.EVERY_S", 0.1)


@pytest.fixture(scope="module")
def chromium() -> Generator[Browser]:
    with browser() as opened_browser:
        yield opened_browser


def test_curves_appear_and_go_on(chromium: Browser) -> None:
    with opened(demo()) as page, tab(chromium, page.address) as (seen_page, seen):
        expect(seen_page.locator("h2").first).to_have_text("Does sharing help?")
        for chart in ("#rewards-chart", "#effort-chart", "#calm-chart"):
            seen_page.wait_for_selector(f"{chart} canvas")
            assert seen_page.evaluate(INK, chart)
        expect(seen_page.locator("#time")).to_contain_text("round 40 of 120")
        expect(seen_page.locator("#verdict")).to_contain_text("These 8 models earn the reward on")
        page.show(demo(90), 120.0)
        expect(seen_page.locator("#time")).to_contain_text("round 90 of 120")
        label = seen_page.locator("#rewards-chart").get_attribute("aria-label")
        assert label is not None
        assert "swarm" in label
        seen_page.get_by_label("held out").check()
        expect(seen_page.locator("#rewards-how")).to_contain_text("nobody trains on")
    assert seen.complaints == []
    assert all(address.startswith(f"http://127.0.0.1:{page.port}/") for address in seen.asked)


def test_one_node_is_shown_with_its_peers_and_a_refusal_appears(chromium: Browser) -> None:
    with opened(alone()) as page, tab(chromium, page.address) as (seen_page, seen):
        expect(seen_page.locator("h2").first).to_have_text("Is it learning?")
        expect(seen_page.locator("#ledger-rows")).to_contain_text("● bob")
        expect(seen_page.locator("#refusals-list")).to_contain_text("a task source this node has in another")
        refused = told(N0, 42, Sampled(4, 0, {}, 9, 1, {"forged": 2}, {BOB: {"forged": 2}}))
        page.show({"run": fold_all(alone()["run"], [refused])}, 61.0)
        expect(seen_page.locator("#refusals-list")).to_contain_text(
            "2forged: not signed by the one it claims"
        )
        seen_page.wait_for_selector("#refusals-chart canvas")
        expect(seen_page.locator("#ledger-rows")).to_contain_text("forged 2")
    assert seen.complaints == []


def test_what_was_said_is_browsed_by_author_task_reward_and_word(chromium: Browser) -> None:
    with opened(alone()) as page, tab(chromium, page.address) as (seen_page, _):
        cards = seen_page.locator("#said-list li")
        expect(cards.first).to_contain_text("gcd of 4 and 6?")
        seen_page.locator("#by").select_option("bob")
        expect(cards).to_have_count(1)
        expect(cards.first).to_contain_text("taken by n0")
        seen_page.locator("#reward").select_option("some")
        expect(cards).to_have_count(0)
        seen_page.locator("#by").select_option("")
        seen_page.locator("#source").select_option("calendar_arithmetic")
        expect(cards.first).to_contain_text("Is 1900 a leap year?")
        seen_page.locator("#source").select_option("")
        seen_page.locator("#text").fill("LEAP")
        expect(cards.first).to_contain_text("leap year")
        seen_page.get_by_role("button", name="Hold still").click()
        before = cards.count()
        said = Said(N0, "easy", "a leap", "late", 1.0)
        page.show(
            {"run": fold_all(alone()["run"], [told(N0, 50, said), told(N0, 50, Verified(1.0, 1, 1.0))])}, 70.0
        )
        expect(seen_page.locator("#time")).to_contain_text("round 41 of 120")
        assert cards.count() == before
        seen_page.get_by_role("button", name="Hold still").click()
        expect(cards.first).to_contain_text("late")


def test_a_hand_on_the_keyboard_is_enough(chromium: Browser) -> None:
    with opened(demo()) as page, tab(chromium, page.address) as (seen_page, seen):
        seen_page.wait_for_selector(".bee")
        seen_page.keyboard.press("Tab")
        expect(seen_page.locator(":focus")).to_have_text("Skip to the charts")
        seen_page.keyboard.press("Tab")
        expect(seen_page.locator(":focus")).to_have_text("Dark")
        seen_page.keyboard.press("Enter")
        expect(seen_page.locator("html")).to_have_attribute("data-theme", "dark")
        for _ in range(4):
            seen_page.keyboard.press("Tab")
            if seen_page.evaluate("document.activeElement.classList.contains('bee')"):
                break
        seen_page.keyboard.press("Enter")
        expect(seen_page.locator(".bee[aria-pressed=true]")).to_have_count(1)
        assert seen_page.locator(".edge.to").count() > 0
        assert seen_page.evaluate("document.activeElement.classList.contains('bee')")
        seen_page.reload()
        expect(seen_page.locator("html")).to_have_attribute("data-theme", "dark")
    assert seen.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_it_fits_every_width_and_axe_finds_no_serious_fault(
    chromium: Browser, width: int, scheme: Literal["light", "dark"]
) -> None:
    for swarms in (demo(), alone(), NOTHING):
        with opened(swarms) as page, tab(chromium, page.address, width, scheme) as (seen_page, seen):
            if swarms:
                seen_page.wait_for_selector("#rewards-chart canvas")
            assert seen_page.evaluate("document.documentElement.scrollWidth") <= width
            assert faults(seen_page) == []
        assert seen.complaints == []


OURS = {"li", "line", "polyline", "rect"}
TAGS = ("script", "img", "svg", "iframe", "style", "link", "base", "form", "object", "meta")
MARKUP = [
    *(f"<{tag}>window.owned=1</{tag}>" for tag in TAGS),
    *(f"<{tag} src=x href=x onload=window.owned=1 onerror=window.owned=1>" for tag in TAGS),
    *(f"\"'><{tag} autofocus tabindex=1 onfocus=window.owned=1>" for tag in TAGS),
    *(f"</title></style></script></textarea><{tag}//onload=window.owned=1>" for tag in TAGS),
    "javascript:window.owned=1",
    "{{constructor.constructor('window.owned=1')()}}${window.owned=1}",
    "__proto__",
    "constructor",
    "\x00\x1b[2J\x1b]0;owned\x07",
    "\u202e\u2066desrever\u2069",
    "data: x\n\nevent: head\ndata: {}\n\n",
    "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16") * 40 + "\u0301" * 400,
    "x" * 5000,
    "]]>--><!--<![CDATA[",
]


def hostile(text: str) -> Swarms:
    """One text wherever a stranger, or a strange run, can put one."""
    name = Author(text[:200])
    node = [
        told(name, 0, Started(text, 1, (text,), text, 9, 8, 1, text)),
        told(name, 0, Evaluated(0.1, {text: 0.1}, 8, 1.0)),
        told(name, 1, Verified(0.5, 1, 0.1, {text: 0.5})),
        told(name, 1, Said(name, text, text, text, 1.0)),
        told(name, 1, Met(name, text, 1, text, {text: text})),
        told(name, 1, Sampled(4, 4, {text: 3, "n1": 1}, 9, 2, {text: 3}, {text: {text: 3}})),
        told(Author("n1"), 1, Failed(text, 70)),
    ]
    return {text: fold_all(SwarmState(), node), "other": fold_all(SwarmState(), node)}


def test_50_hostile_texts_do_nothing(chromium: Browser) -> None:
    assert len(set(MARKUP)) == 50
    with opened(demo()) as page, tab(chromium, page.address) as (seen_page, seen):
        seen_page.wait_for_selector("#rewards-chart canvas")
        known = seen_page.evaluate(
            "[...new Set([...document.querySelectorAll('*')].map((x) => x.localName))]"
        )
        for number, text in enumerate(MARKUP):
            page.show(hostile(text), 1000.0 + number)
            # The run's clock says which of them is on the screen.
            seen_page.wait_for_function(ELAPSED, arg=1000 + number)
            seen_page.wait_for_function("document.querySelectorAll('#said-list li').length > 0")
        assert seen_page.evaluate("window.owned") is None
        tags = seen_page.evaluate(ELEMENTS)
        # Whatever the texts are made of, the page has the elements that it draws and no others.
        assert set(tags) - set(known) <= OURS
        assert seen_page.evaluate("Object.prototype.polluted") is None
        assert all(address.startswith(f"http://127.0.0.1:{page.port}/") for address in seen.asked)
        assert seen_page.url == page.address
    assert seen.complaints == []


@pytest.mark.alone
def test_100_000_events_and_500_peers_stay_under_100_ms_an_update(chromium: Browser) -> None:
    crowd = fold_all(SwarmState(), entries(34, 2000, 500, together=True))
    more = list(entries(36, 2000, 500, together=True))
    newer = [one for one in more if one.round > 34]
    busy: list[float] = []
    with opened({"crowd": crowd}) as page, tab(chromium, page.address) as (seen_page, seen):
        expect(seen_page.locator("#nodes-rows tr")).to_have_count(40)
        for number in range(6):
            part = newer[number * len(newer) // 6 : (number + 1) * len(newer) // 6]
            crowd = fold_all(crowd, part)
            before = float(seen_page.evaluate("document.documentElement.dataset.busy"))
            page.show({"crowd": crowd}, 61.0 + number)
            seen_page.wait_for_function(ELAPSED, arg=61 + number)
            seen_page.wait_for_timeout(300)
            busy.append(float(seen_page.evaluate("document.documentElement.dataset.busy")) - before)
        expect(seen_page.locator("#ledger-more")).to_have_text("Show all 500")
    assert seen.complaints == []
    assert min(busy) < 100.0, f"an update of 500 nodes took {min(busy):.0f} to {max(busy):.0f} ms"
