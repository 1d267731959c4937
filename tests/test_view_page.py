"""The page's server: what it tells, to whom, and what it forbids."""

import json
import socket
import time
from itertools import islice

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from page_run import ask, listening, opened
from test_view_terminal import HOSTILE, STATES
from view_run import entries, swarm_state, told
from waggledance.errors import UsageError
from waggledance.events import Failed, Met, Said, Sampled, Stuck, Unsaved
from waggledance.rollout import Author
from waggledance.view.guard import Guard
from waggledance.view.page import Page, PagePlace
from waggledance.view.scene import EDGES_LIMIT, GRAPH_LIMIT, POINTS_LIMIT, Swarms, scene, told_since
from waggledance.view.stage import Reader, Stage
from waggledance.view.state import SwarmState, fold_all
from waggledance.view.text import plain_lines

PARTS = {"head", "rewards", "holding", "tasks", "nodes", "graph", "ledger", "refusals", "effort"}
DEMO: Swarms = {"silo": swarm_state(40, together=False), "swarm": swarm_state(40)}


@pytest.mark.parametrize("state", STATES)
def test_every_state_has_a_scene_without_a_control_character(state: str) -> None:
    parts = scene(HOSTILE, STATES[state], 95.0)
    assert set(parts) == PARTS
    shown = [*parts.values(), told_since(STATES[state], {})]
    text = json.dumps(msgspec.to_builtins(shown), ensure_ascii=False).replace("\\n", "")
    assert text.isprintable()


def test_the_scene_says_what_the_state_holds() -> None:
    parts = msgspec.to_builtins(scene("demo", DEMO, 60.0))
    assert parts["head"]["round"] == 40
    assert parts["head"]["left_seconds"] == 120
    assert [line["name"] for line in parts["rewards"]["own"]] == ["silo", "swarm"]
    swarm = parts["rewards"]["own"][1]
    assert len(swarm["x"]) == len(swarm["y"]) == len(swarm["low"]) == len(swarm["high"])
    assert all(low <= y <= high for low, y, high in zip(swarm["low"], swarm["y"], swarm["high"], strict=True))
    assert len(parts["nodes"]) == 16
    assert {len(task["lines"]) for task in parts["tasks"]} == {2}
    shares: dict[int, float] = {}
    for _, taker, share in parts["graph"]["edges"]:
        shares[taker] = shares.get(taker, 0.0) + share
    assert all(abs(share - 1.0) < 0.01 for share in shares.values())
    assert len(shares) == 8
    assert sum(account["taken"] for account in parts["ledger"]) == 8 * 40 * 4
    assert sum(account["share"] for account in parts["ledger"]) == pytest.approx(1.0, abs=0.001)
    [stale] = parts["refusals"]
    assert stale["total"] == sum(stale["line"]["y"])


def test_a_scene_stays_small_however_long_and_large_a_run_is() -> None:
    crowd = fold_all(SwarmState(), entries(12, 2000, 150, together=True))
    parts = scene("crowd", {"crowd": crowd}, 60.0)
    graph = msgspec.to_builtins(parts["graph"])
    assert len(graph["names"]) == GRAPH_LIMIT
    assert len(graph["edges"]) <= EDGES_LIMIT
    assert graph["left_out"] == 150 - GRAPH_LIMIT
    long = fold_all(SwarmState(), entries(2200, 2200, 1, together=True))
    line = msgspec.to_builtins(scene("long", {"long": long}, 60.0)["rewards"])["own"][0]
    assert len(line["x"]) <= POINTS_LIMIT
    assert line["x"][-1] == 2200


def test_whatever_somebody_should_look_after_stands_at_the_top() -> None:
    troubled = fold_all(
        DEMO["swarm"],
        [
            told(Author("n1"), 41, Unsaved("disk full")),
            told(Author("n2"), 41, Stuck("learn", "grpo.py:9", 700.0)),
            told(Author("n3"), 41, Failed("out of memory", 4)),
        ],
    )
    failed, stuck, unsaved = msgspec.to_builtins(scene("run", {"swarm": troubled}, 1.0)["head"])["failed"]
    assert failed == "swarm n3 failed: out of memory"
    assert stuck.startswith("swarm n2 is stuck: ")
    assert unsaved == "swarm n1 cannot save: disk full"


def test_peers_that_are_here_and_peers_that_were_refused_have_an_account() -> None:
    bob, eve = Author("bob.abcdefgh234567ab"), Author("eve")
    node = fold_all(
        SwarmState(),
        [
            told(Author("n0"), 1, Met(bob, "smollm2", 10, "0", {})),
            told(Author("n0"), 1, Sampled(4, 2, {bob: 2}, 0, 1, {"forged": 3}, {eve: {"forged": 3}})),
        ],
    )
    first, second = msgspec.to_builtins(scene("run", {"run": node}, 1.0)["ledger"])
    assert (first["name"], first["here"], first["taken"], first["model"]) == ("bob", True, 2, "smollm2")
    assert (second["name"], second["here"], second["refused"]) == ("eve", False, {"forged": 3})


def test_a_reader_is_sent_what_changed_and_nothing_twice() -> None:
    stage, reader = Stage("run"), Reader()
    stage.show(DEMO, 60.0)
    assert {name for name, _ in stage.news(reader)} == PARTS | {"said"}
    assert stage.news(reader) == []
    stage.show(DEMO, 61.0)
    assert [name for name, _ in stage.news(reader)] == ["head"]
    more = fold_all(DEMO["swarm"], [told(Author("n0"), 40, Said(Author("n0"), "easy", "q", "new", 0.0))])
    stage.show({**DEMO, "swarm": more}, 61.0)
    [(name, said)] = stage.news(reader)
    assert name == "said"
    assert [saying["text"] for saying in json.loads(said)] == ["new"]
    assert {name for name, _ in stage.news(Reader())} == PARTS | {"said"}


def test_the_stream_tells_all_at_first_and_then_what_is_new() -> None:
    with opened(DEMO) as page, listening(page) as events:
        first = dict(islice(events, len(PARTS) + 1))
        assert set(first) == PARTS | {"said"}
        assert first["head"]["run"] == "a run"
        page.show({"swarm": swarm_state(41)}, 61.0)
        name, head = next(events)
        assert (name, head["round"]) == ("head", 41)


def test_what_the_page_is_made_of_is_served_with_its_headers_and_nothing_else_is() -> None:
    with opened(DEMO) as page:
        for path in ("/", "/static/page.js", "/static/page.css", "/static/uPlot.iife.min.js", "/pictures"):
            status, headers, body = ask(page, path)
            assert (status, bool(body)) == (200, True)
            assert "default-src 'none'" in headers["content-security-policy"]
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
            assert "server" not in headers
        for path in ("/static/../page.py", "/static/%2e%2e%2fpage.py", "/static/", "/pictures/x", "/x"):
            assert ask(page, path)[0] == 404
        assert ask(page, "/", method="POST")[0] == 405


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8033", "127.0.0.1.evil.example", "", "[::2]"])
def test_another_name_may_not_point_here(host: str) -> None:
    with opened(DEMO) as page:
        for path in ("/", "/stream", "/static/page.js"):
            status, _, body = ask(page, path, host=host)
            assert (status, body) == (421, b"421 Misdirected Request")
        assert ask(page, "/", host="LOCALHOST")[0] == 200


def test_beyond_this_machine_a_token_is_asked_and_moves_into_a_cookie() -> None:
    with opened(DEMO, host="0.0.0.0") as page:  # noqa: S104
        token = page.address.partition("?token=")[2]
        assert len(token) >= 24
        for path in ("/", "/stream", "/static/page.js", "/pictures", "/?token=wrong", "/?token="):
            assert ask(page, path)[0] == 403
        status, headers, _ = ask(page, f"/?token={token}")
        assert (status, headers["location"]) == (303, "/")
        cookie = headers["set-cookie"].partition(";")[0]
        assert {"HttpOnly", "SameSite=strict"} <= set(headers["set-cookie"].split("; "))
        assert ask(page, "/", Cookie=cookie)[0] == 200
        assert ask(page, "/", Authorization=f"Bearer {token}")[0] == 200
        assert ask(page, "/", host="192.0.2.7:80", Cookie=cookie)[0] == 200
        assert ask(page, "/", host="evil.example", Cookie=cookie)[0] == 421


def test_a_given_token_is_asked_on_this_machine_too() -> None:
    with opened(DEMO, token="secret") as page:  # noqa: S106
        assert ask(page, "/")[0] == 403
        assert ask(page, "/", Authorization="Bearer secret")[0] == 200


texts = st.text(max_size=30)


@given(texts, texts, texts, texts, texts)
def test_no_header_opens_a_guarded_page_but_the_token(
    host: str, bearer: str, cookie: str, query: str, key: str
) -> None:
    guard = Guard(frozenset({"localhost"}), "the token")
    headers = {"host": host, "authorization": bearer, key: bearer}
    assert guard.refuses(headers, {"waggle": cookie}, {"token": query}) is not None


def test_a_form_of_another_site_may_not_write() -> None:
    guard = Guard(frozenset({"localhost"}), None)
    own = {"host": "localhost:80", "origin": "http://localhost:80", "content-type": "application/json"}
    assert guard.may_write(own)
    assert not guard.may_write({**own, "origin": "http://evil.example"})
    assert not guard.may_write({**own, "origin": "null"})
    assert not guard.may_write({**own, "content-type": "text/plain"})


def test_a_port_in_use_is_refused_where_it_was_asked_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(UsageError, match=f"page 127.0.0.1:{port}: Address already in use; name another"):
            Page("run", PagePlace(port))
    with opened(DEMO) as first, opened(DEMO) as second:
        assert first.port != second.port
    with pytest.raises(UsageError, match="name another port, or an address of this machine"):
        Page("run", PagePlace(0, "192.0.2.1"))


def test_closing_ends_the_readers_streams_at_once() -> None:
    with opened(DEMO) as page, listening(page) as events:
        next(events)
        start = time.monotonic()
        page.close()
        assert time.monotonic() - start < 3.0
        assert len(list(events)) == len(PARTS)


@pytest.mark.parametrize("text", ["", "a\nb", HOSTILE, "x" * 10**6, "\n" * 10**6])
def test_lines_are_plain_and_bounded(text: str) -> None:
    shown = plain_lines(text, 100, 10)
    assert len(shown) <= 100
    assert shown.count("\n") < 10
    assert shown.replace("\n", "").isprintable()


@pytest.mark.slow
@pytest.mark.alone
def test_100_000_events_and_500_nodes_are_a_scene_in_a_blink() -> None:
    crowd = fold_all(SwarmState(), entries(34, 2000, 500, together=True))
    stage, spent, news = Stage("crowd"), list[float](), list[tuple[str, bytes]]()
    for second in range(5):
        stage.show({"crowd": crowd}, 60.0 + second)
        start = time.process_time()
        news = stage.news(Reader())
        spent.append(time.process_time() - start)
    assert sum(len(encoded) for _, encoded in news) < 1_000_000
    assert min(spent) < 0.1
