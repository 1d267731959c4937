"""Draws and carried tasks: nobody picks its question, and nobody's truth is taken but where it was agreed."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm_run import advance, make_node
from waggledance.cli.assemble import open_place
from waggledance.config import NodeConfig, SwarmConfig
from waggledance.draw import drawn_index
from waggledance.events import Sampled
from waggledance.node import Node, _built  # pyright: ignore[reportPrivateUsage]
from waggledance.rollout import Author, Carried, Group, Rollout, key_of, name_of
from waggledance.seams import Source
from waggledance.sharing.fixed import Fixed
from waggledance.swarm.identity import fingerprint, open_identity
from waggledance.swarm.memory import MemoryHub
from waggledance.swarm.wire import decode, encode
from waggledance.task import Digest, SourceName, Task
from waggledance.tasks import Arithmetic, Jsonl
from waggledance.verify import RULES

SIGNED = Author(f"ant.{fingerprint(b'a key')}")
PRIVATE = frozenset(RULES)


def sampled(node: Node) -> list[Sampled]:
    return [entry.event for entry in node.journal.entries if isinstance(entry.event, Sampled)]


def a_group(author: Author = SIGNED, **changes: Any) -> Group:
    """One its author drew, unless it is changed; a right and a wrong answer."""
    source = Arithmetic()
    index = drawn_index(key_of(author), 5, 2, source.name, source.size)
    texts = (f"<answer>{source.task(index).truth}</answer>", "<answer>x</answer>")
    rollouts = tuple(Rollout(text, finished=True, tokens=3, mean_logprob=-1.0) for text in texts)
    group = Group(author, 5, source.name, source.digest, index, rollouts, 2)
    return replace(group, **changes)


def taken(group: Group, **of: Any) -> tuple[int, dict[str, dict[str, int]]]:
    """How many a node takes of this group, and what it refuses of whom."""
    hub = MemoryHub()
    node = make_node("n0", hub, **of)
    hub.join(group.author).publish(group)
    node.round()
    [event] = sampled(node)
    return event.foreign, event.refused_of


# ── draws ─────────────────────────────────────────────────────────────────────────────────────────────


def test_the_index_hangs_on_key_round_place_and_source() -> None:
    """Fixed for ever: nodes of all versions must come to the same."""
    key, name = "abcdefghijklmnop", SourceName("arithmetic")
    assert drawn_index(key, 1, 0, name, 10**6) == DRAWN
    others = {
        drawn_index("ponmlkjihgfedcba", 1, 0, name, 10**6),
        drawn_index(key, 2, 0, name, 10**6),
        drawn_index(key, 1, 1, name, 10**6),
        drawn_index(key, 1, 0, SourceName("paper:bf"), 10**6),
    }
    assert len(others | {DRAWN}) == 5


DRAWN = 895_215


@given(st.integers(0, 2**62), st.integers(0, 1023), st.integers(1, 10**6))
def test_an_index_is_one_of_the_sources(round_number: int, place: int, size: int) -> None:
    assert 0 <= drawn_index("abcdefghijklmnop", round_number, place, SourceName("s"), size) < size


def test_what_was_drawn_is_taken() -> None:
    assert taken(a_group()) == (1, {})


@pytest.mark.parametrize("changes", [{"index": 7}, {"round": 6}, {"place": 3}])
def test_what_was_picked_is_refused(changes: dict[str, Any]) -> None:
    """Another question than the draw's, or another draw than the question's."""
    assert taken(a_group(**changes)) == (0, {SIGNED: {"pick": 1}})


def test_a_draw_of_one_key_is_none_of_another() -> None:
    other = Author(f"bee.{fingerprint(b'another key')}")
    assert taken(replace(a_group(), author=other)) == (0, {other: {"pick": 1}})


def test_of_ten_thousand_picked_none_is_taken_and_of_as_many_drawn_all(
    record_property: Callable[[str, object], None],
) -> None:
    source, key, group = Arithmetic(), key_of(SIGNED), a_group()
    figures = {"drawn, taken": 0, "picked, taken": 0}
    for number in range(10_000):
        index = drawn_index(key, number, number % 8, source.name, source.size)
        drawn = replace(group, round=number, place=number % 8, index=index)
        figures["drawn, taken"] += isinstance(_built(source, drawn), Task)
        figures["picked, taken"] += _built(source, replace(drawn, index=(index + 1) % source.size)) != "pick"
    for name, figure in figures.items():
        record_property(name, figure)
    assert figures == {"drawn, taken": 10_000, "picked, taken": 0}


def test_signed_nodes_take_each_others_groups() -> None:
    hub = MemoryHub()
    nodes = [make_node(f"{name}.{fingerprint(name.encode())}", hub) for name in ("ant", "bee")]
    advance(nodes, 6)
    assert sum(event.foreign for event in sampled(nodes[0])) > 0
    assert not any(event.refused for node in nodes for event in sampled(node))


def test_a_silo_twin_with_its_twins_key_draws_the_same_tasks_first() -> None:
    author = Author(f"n0.{fingerprint(b'n0')}")
    swarm_node = make_node(author, MemoryHub(), mix=Fixed(4, 4))
    silo = make_node("n0", MemoryHub(), mix=Fixed(8, 0), key=key_of(author))
    for _ in range(3):
        assert [task.index for task in silo.draw()][:4] == [task.index for task in swarm_node.draw()]


def test_a_lone_node_keeps_to_the_key_of_its_folder(tmp_path: Path) -> None:
    alone = NodeConfig(name="ant", swarm=SwarmConfig(kind="none"))
    assert open_place(alone, tmp_path).key == ""
    assert list(tmp_path.iterdir()) == []
    author = open_identity(tmp_path, "ant", 0).author
    place = open_place(alone, tmp_path)
    assert (place.key, place.author, place.identity) == (key_of(author), name_of(author), None)


# ── carried tasks ─────────────────────────────────────────────────────────────────────────────────────


def mine(folder: Path) -> Jsonl:
    path = folder / "mine.jsonl"
    lines = [{"question": f"What is {n} + 1?", "answer": str(n + 1), "rule": "number"} for n in range(40)]
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return Jsonl(path)


def exchange(giver: Sequence[Source], *, carry: bool, rules: frozenset[str]) -> list[Sampled]:
    """Six rounds of a node with these sources and one that has arithmetic alone; what the latter took."""
    hub = MemoryHub()
    carries = frozenset(source.name for source in giver) if carry else frozenset[SourceName]()
    nodes = [
        make_node("n0", hub, rules=rules),
        make_node(SIGNED, hub, sources=tuple(giver), success=0.5, carries=carries),
    ]
    advance(nodes, 6)
    return sampled(nodes[0])


def test_a_private_swarm_trains_on_tasks_that_one_member_has(tmp_path: Path) -> None:
    events = exchange([mine(tmp_path)], carry=True, rules=PRIVATE)
    assert sum(event.foreign for event in events) > 0
    assert not any(event.refused for event in events)


@pytest.mark.parametrize(("carry", "rules"), [(True, frozenset[str]()), (False, PRIVATE)])
def test_elsewhere_it_does_not(carry: bool, rules: frozenset[str], tmp_path: Path) -> None:
    events = exchange([mine(tmp_path)], carry=carry, rules=rules)
    assert sum(event.foreign for event in events) == 0
    assert sum(event.refused.get("source", 0) for event in events) > 0


def test_carried_truth_does_not_replace_what_this_node_builds() -> None:
    """Of a task that both have, question and truth are the receiver's."""
    lie = Carried("What is 1 + 1?", "text", "x")
    group = a_group(carried=lie)
    hub = MemoryHub()
    node = make_node("n0", hub, rules=PRIVATE)
    [scored] = node._scored([group])  # pyright: ignore[reportPrivateUsage]
    assert scored.task == Arithmetic().task(group.index)
    assert scored.rewards == (1.0, 0.0)


def test_a_rule_that_is_not_known_by_name_judges_nothing() -> None:
    carried = Carried("q", "never_heard_of", "a")
    group = a_group(source=SourceName("jsonl:theirs.jsonl"), carried=carried)
    assert taken(group, rules=PRIVATE) == (0, {SIGNED: {"rule": 1}})


def test_another_file_of_the_same_name_is_taken_with_its_own_truth(tmp_path: Path) -> None:
    source = mine(tmp_path)
    group = a_group(source=source.name, digest=Digest("another"), carried=Carried("q", "text", "x"))
    assert taken(group, rules=PRIVATE, sources=(source, Arithmetic())) == (1, {})
    assert taken(group, sources=(source, Arithmetic())) == (0, {SIGNED: {"digest": 1}})


def test_what_is_carried_costs_its_own_length() -> None:
    bare = encode(a_group())
    carried = encode(a_group(carried=Carried("q" * 100, "number", "7")))
    assert len(carried) - len(bare) <= 100 + len("number") + 1 + 6
    assert decode(carried, SIGNED).carried == Carried("q" * 100, "number", "7")
