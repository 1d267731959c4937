"""Metrics as a scraper reads them, health as a supervisor does, and the dashboard that is drawn from them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from page_run import ask, opened
from test_view_terminal import STATES
from view_run import swarm_state, told
from waggledance.events import Failed, Learned, Sampled, Stuck
from waggledance.rollout import Author
from waggledance.view.metrics import exposition, health
from waggledance.view.scene import Swarms
from waggledance.view.state import fold, fold_all

N0 = Author("n0")
DASHBOARD = Path(__file__).parents[1] / "deploy" / "grafana.json"


def samples(swarms: Swarms) -> dict[tuple[str, ...], float]:
    """By name and the labels' values, as another's parser reads them."""
    text = exposition(swarms, 1.5).decode()
    return {
        (sample.name, *(sample.labels[one] for one in ("swarm", "node", "reason") if one in sample.labels)): (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_scraper_reads_what_the_state_holds() -> None:
    node = fold_all(
        swarm_state(40, nodes=1),
        [told(N0, 41, Sampled(4, 2, {"bob": 2}, 9, 3, {"digest": 3, "seal": 1}, heard=5, dropped=1))],
    )
    read = samples({"run": node})
    assert read["waggle_round", "run", "n0"] == 41
    assert read["waggle_rounds_planned", "run", "n0"] == 120
    assert read["waggle_tokens_generated_total", "run", "n0"] == 40 * 64 * 10
    assert read["waggle_groups_taken_total", "run", "n0"] == 2
    assert read["waggle_refused_total", "run", "n0", "digest"] == 3
    assert read["waggle_peers", "run", "n0"] == 3
    assert read["waggle_memory_bytes", "run", "n0"] == 400_000_000
    assert read[("waggle_silent_seconds",)] == 1.5


@pytest.mark.parametrize("state", STATES)
def test_every_state_can_be_read(state: str) -> None:
    assert ("waggle_silent_seconds",) in samples(STATES[state])


def test_health_tells_what_a_supervisor_must_know() -> None:
    running = {"run": swarm_state(40, nodes=1)}
    assert health(running, 5.0).status == "ok"
    assert health(running, 119.0).well
    assert health(running, 121.0).status == "silent"
    slow = {"run": fold(running["run"], told(N0, 500, Learned(0.1, 1, 1, 0.1, 0.1, 0.0, 0.0, 400.0)))}
    assert health(slow, 121.0).status == "ok"
    assert health({"run": fold(running["run"], told(N0, 41, Failed("disk full", 7)))}, 0.0).status == "failed"
    assert health({"run": swarm_state(120)}, 1e6).status == "done"
    stuck = {"run": fold(running["run"], told(N0, 41, Stuck("learn", "grpo.py:9", 700.0)))}
    assert (health(stuck, 5.0).status, health(stuck, 5.0).well) == ("stuck", False)
    assert health({}, 0.0).status == "starting"


def test_both_are_served_beside_the_page() -> None:
    with opened({"run": swarm_state(40, nodes=1)}) as page:
        status, headers, body = ask(page, "/metrics")
        assert (status, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert b'waggle_round{node="n0",swarm="run"} 40.0' in body
        status, _, body = ask(page, "/health")
        assert (status, json.loads(body)["status"]) == (200, "ok")
        failed = fold(swarm_state(40, nodes=1), told(N0, 41, Failed("disk full", 7)))
        page.show({"run": failed}, 60.0)
        status, _, body = ask(page, "/health")
        assert (status, json.loads(body)["status"]) == (503, "failed")
        assert ask(page, "/metrics", host="evil.example")[0] == 421


def test_the_dashboard_asks_for_metrics_that_there_are() -> None:
    node = fold(swarm_state(120, nodes=1), told(N0, 120, Sampled(4, 0, {}, 0, 0, {"seal": 1})))
    known = {name for name, *_ in samples({"run": node})}
    dashboard: dict[str, Any] = json.loads(DASHBOARD.read_text())
    asked = {
        name
        for panel in dashboard["panels"]
        for target in panel["targets"]
        for name in re.findall(r"waggle_\w+", target["expr"])
    }
    assert asked
    assert asked <= known
    assert all(panel["title"].endswith("?") for panel in dashboard["panels"])
