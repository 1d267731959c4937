"""The live view: it fits every terminal, says nothing a terminal obeys, and becomes plain lines elsewhere."""

import io
import re

import pytest
from rich.cells import cell_len
from rich.console import Console

from view_run import swarm_state, told
from waggledance.events import Failed, Met, Said, Sampled, Started, Verified
from waggledance.rollout import Author
from waggledance.view.panels import Swarms
from waggledance.view.state import SwarmState, fold, fold_all
from waggledance.view.terminal import DemoView, clock, plain_line, render

SIZES = [(40, 12), (60, 16), (80, 24), (120, 40), (149, 20), (150, 20), (200, 60)]
HOSTILE = "\x1b[2J\x1b[1;1H\n\r\u202e[bold]owned[/] :smile:\ttab\x9b" + "\u0301" * 50


def demo(rounds: int) -> dict[str, SwarmState]:
    return {"silo": swarm_state(rounds, together=False), "swarm": swarm_state(rounds)}


def hostile_swarm() -> SwarmState:
    name = Author(HOSTILE)
    return fold_all(
        SwarmState(),
        [
            told(name, 0, Started(HOSTILE, 1, (HOSTILE,), HOSTILE, 9, 8, 1, HOSTILE)),
            told(name, 1, Verified(0.5, 1, 0.1)),
            told(name, 1, Said(name, HOSTILE, HOSTILE, HOSTILE, 1.0)),
            told(name, 1, Sampled(4, 4, {HOSTILE: 3, "n1": 1}, 9, 2, {HOSTILE: 3})),
            told(Author("n1"), 1, Failed(HOSTILE, 70)),
        ],
    )


def screen(swarms: Swarms, width: int, height: int) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=width, height=height, color_system=None)
    console.print(render(swarms, width, height, 95.0))
    return out.getvalue().splitlines()


STATES: dict[str, Swarms] = {
    "nothing": {},
    "not started": {"silo": SwarmState(), "swarm": SwarmState()},
    "first": {"silo": SwarmState(), "swarm": swarm_state(3)},
    "running": demo(40),
    "done": demo(120),
    "alone": {"swarm": swarm_state(40)},
    "one node": {"swarm": swarm_state(40, nodes=1)},
    "many nodes": {"silo": swarm_state(5, nodes=40, together=False), "swarm": swarm_state(5, nodes=40)},
    "three": {**demo(40), "other": swarm_state(20)},
    "hostile": {HOSTILE: hostile_swarm()},
    "hostile and alone": {
        HOSTILE: SwarmState({name: node for name, node in hostile_swarm().nodes.items() if name != "n1"})
    },
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_it_fits_every_terminal(state: str, width: int, height: int) -> None:
    lines = screen(STATES[state], width, height)
    assert len(lines) <= height
    assert all(cell_len(line) == width for line in lines)
    assert all(line.isprintable() for line in lines)


def test_80_by_24_shows_the_whole_story() -> None:
    text = "\n".join(screen(demo(40), 80, 24))
    for question in (
        "Does sharing help?",
        "How is each node doing?",
        "Who learns from whom?",
        "What earned a reward",
    ):
        assert question in text
    assert "round 40/120" in text
    assert "3:10 left" in text
    assert all(f"n{place} " in text for place in range(8))


def test_one_node_alone_gets_a_portrait() -> None:
    peer = Author("bob.abcdefgh234567ab")
    node = fold_all(
        swarm_state(40, nodes=1),
        [
            told(Author("n0"), 41, Met(peer, "smollm2", 10**8, "0", {})),
            told(Author("n0"), 41, Sampled(4, 2, {peer: 2}, 9, 1, {"digest": 3}, {peer: {"digest": 3}}, 5)),
            told(Author("n0"), 41, Said(peer, "easy:gcd", "gcd of 4 and 6?", "two", 0.0)),
        ],
    )
    text = "\n".join(screen({"run": node}, 100, 30))
    for question in ("Is it learning?", "What is it doing?", "Who gives, and what was refused?"):
        assert question in text
    assert "learning · round 41" in text
    assert "took 2 of 5 heard" in text
    assert "refused: digest 3 (a task source this node has in another version)" in text
    assert re.search(r"● bob +2 taken 100%  refused digest 3  smollm2", text)
    assert re.search(r"41 \.000 bob +easy:gcd +gcd of 4 and 6\? → two", text)


def test_silence_is_told_after_a_minute() -> None:
    assert plain_line(demo(40), 62.5, silent_seconds=59.0).endswith("2:05 left")
    assert plain_line(demo(40), 62.5, silent_seconds=125.0).endswith("silent for 2:05")
    assert plain_line(demo(120), 62.5, silent_seconds=125.0).endswith("done in 1:02")


def test_a_failed_node_says_why() -> None:
    failed = fold(swarm_state(40), told(Author("n3"), 40, Failed("disk full: free some space", 7)))
    text = "\n".join(screen({"swarm": failed}, 80, 24))
    assert "swarm n3 failed: disk full: free some space" in text
    assert "1 failed" in text


def test_a_line_says_round_rewards_and_time_left() -> None:
    line = plain_line(demo(40), 62.5)
    assert re.fullmatch(r"round 40/120  silo 0\.\d{3}  swarm 0\.\d{3}  2:05 left", line)
    assert plain_line(demo(120), 125).endswith("done in 2:05")
    last_round = [
        told(Author("n0"), 0, Started("m", 1, (), "8/0", 1, 8, 1, "0")),
        told(Author("n0"), 1, Verified(0.5, 1, 0.1)),
    ]
    assert plain_line({"silo": fold_all(SwarmState(), last_round)}, 9.0) == "round 1/1  silo 0.500  finishing"
    assert plain_line({"silo": SwarmState()}, 1.0) == "round 0/0  silo –  starting"
    assert plain_line(demo(40), 62.5, left_seconds=9.0).endswith("0:09 left")


def test_without_a_terminal_there_are_plain_lines_every_few_seconds() -> None:
    out = io.StringIO()
    swarms = {**demo(40), HOSTILE: hostile_swarm()}
    with DemoView(Console(file=out, width=40)) as view:
        for quarter_seconds in range(4 * 12):
            view.show(swarms, quarter_seconds / 4)
    lines = out.getvalue().splitlines()
    assert len(lines) == 4
    assert all(line.isprintable() for line in lines)


def test_on_a_terminal_it_takes_a_screen_of_its_own_and_leaves_the_last_picture() -> None:
    out = io.StringIO()
    with DemoView(Console(file=out, width=80, height=24, force_terminal=True, _environ={})) as view:
        view.show(demo(40), 60.0)
        view.show(demo(120), 180.0)
    before, _, after = out.getvalue().partition("\x1b[?1049l")
    assert before.startswith("\x1b[?1049h")
    assert "Does sharing help?" in after
    assert "done in 3:00" in after


def test_after_an_error_the_screen_is_given_back() -> None:
    out = io.StringIO()
    view = DemoView(Console(file=out, width=80, height=24, force_terminal=True, _environ={}))

    def interrupted() -> None:
        with view:
            view.show(demo(3), 1.0)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert "Does sharing help?" not in out.getvalue().partition("\x1b[?1049l")[2]


def test_clock() -> None:
    assert [clock(seconds) for seconds in (0, 59.6, 125, 3725)] == ["0:00", "1:00", "2:05", "1:02:05"]
