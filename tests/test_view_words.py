"""What a state means in plain words."""

import pytest

from view_run import swarm_state, told
from waggledance.events import Verified
from waggledance.rollout import Author
from waggledance.view.state import SwarmState, fold
from waggledance.view.words import reason_words, size_words, verdict


def test_a_verdict_says_how_it_stands_at_every_time() -> None:
    assert verdict({}) == verdict({"silo": SwarmState(), "swarm": SwarmState()}) == "Nothing has started yet."
    assert verdict({"swarm": swarm_state(0)}) == "The first questions are being asked."
    first = fold(SwarmState(), told(Author("n0"), 1, Verified(0.25, 1, 0.1)))
    assert verdict({"run": first}) == "This model earns the reward on 25.0% of its fresh answers."


def test_a_verdict_compares_with_those_who_learn_alone() -> None:
    text = verdict({"silo": swarm_state(120, together=False), "swarm": swarm_state(120)})
    assert text.startswith("These 8 models earn the reward on 1")
    assert "; the same models, each alone, on " in text
    assert text.endswith(" times as many.")


def test_a_verdict_on_one_swarm_says_what_held_out_questions_say() -> None:
    assert " before, " in verdict({"swarm": swarm_state(120)})


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (412_345_678, "412 MB"), (2.5e9, "2.5 GB")],
)
def test_sizes_are_rounded_for_people(count: float, words: str) -> None:
    assert size_words(count, "B") == words


def test_every_reason_has_words_even_one_that_was_made_up() -> None:
    assert reason_words("version 9") == "of another major version"
    assert reason_words("seal") == "not sealed with this swarm's key"
    assert reason_words("<b>") == "refused"
