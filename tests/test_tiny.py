"""The shipped tiny model: small, offline, reads and writes any text, and starts where sharing matters."""

# pyright: standard

import functools
import json
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from waggledance.model import TINY_FOLDER, Model, load_model
from waggledance.policy.hf import HFPolicy
from waggledance.tasks import open_sources
from waggledance.verify import verify


@functools.cache
def tiny() -> Model:
    torch.set_num_threads(1)
    return load_model("tiny")


def test_it_is_a_llama_of_about_a_million_weights_in_less_than_four_megabytes() -> None:
    assert tiny().network.config.model_type == "llama"
    assert 500_000 < tiny().weights < 1_500_000
    files = {file.name: file.stat().st_size for file in TINY_FOLDER.iterdir()}
    assert sum(files.values()) < 4e6
    assert {name.rpartition(".")[2] for name in files} <= {"json", "jinja", "safetensors", "md"}


def test_its_card_tells_what_it_is() -> None:
    card = (TINY_FOLDER / "README.md").read_text()
    assert f"{tiny().weights:,} weights" in card
    assert "scripts/make_tiny_model.py" in card


@given(st.text(max_size=200))
def test_any_text_comes_back(text: str) -> None:
    ids = tiny().text_ids(text, finished=True)
    assert ids[-1] == tiny().end_ids[0]
    assert tiny().text(ids) == text


def test_every_byte_is_a_token() -> None:
    """So that no text is unknown: the whole alphabet of bytes, and no token for the unknown."""
    settings = json.loads((TINY_FOLDER / "tokenizer.json").read_text())
    words = settings["model"]["vocab"]
    assert set(pre_tokenizers.ByteLevel.alphabet()) <= set(words)
    assert len(words) == len(tiny().tokenizer) == 512
    assert tiny().tokenizer.unk_token_id is None


def test_the_prompt_is_the_question_and_its_window_holds_the_easy_ones() -> None:
    sources = open_sources(["easy"])
    for source in sources:
        prompts = [tiny().prompt_ids(source.task(index)) for index in range(20)]
        assert tiny().text(prompts[0]) == source.task(0).question + "\n"
        assert max(map(len, prompts)) + 32 < tiny().window


OFFLINE = """
import socket
def refuse(*_): raise AssertionError("network")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
from waggledance.model import load_model
load_model("tiny")
"""


def test_it_loads_without_touching_the_network() -> None:
    done = subprocess.run([sys.executable, "-c", OFFLINE], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_it_starts_where_sharing_matters() -> None:
    """Right now and then, between 0.1 and 2 % of completions; most groups carry no signal.

    Of about 4,000 completions 7 are right, give or take 3: the seed is fixed, so this does not flicker.
    """
    sources = open_sources(["easy"])
    policy = HFPolicy(tiny(), temperature=1.0, max_tokens=16)
    rewards: list[tuple[float, ...]] = []
    for part in range(10):
        tasks = [source.task(part * 1000 + k) for k in range(7) for source in sources]
        answers = policy.generate(tasks, 8, part)
        rewards += [verify(one, [r.text for r in rs]) for one, rs in zip(tasks, answers, strict=True)]
    right = sum(map(sum, rewards)) / sum(map(len, rewards))
    informative = sum(len(set(scores)) > 1 for scores in rewards) / len(rewards)
    assert 0.001 <= right <= 0.02
    assert 0 < informative < 0.1


@pytest.mark.slow
def test_it_starts_where_sharing_matters_on_every_easy_task_together() -> None:
    """The same over four times as many, held-out ones: 0.1 % is well outside chance."""
    sources = open_sources(["easy"])
    policy = HFPolicy(tiny(), temperature=1.0, max_tokens=16)
    tasks = [source.task(source.size + k) for k in range(280) for source in sources]
    rewards: list[float] = []
    for first in range(0, len(tasks), 70):
        some = tasks[first : first + 70]
        for one, rollouts in zip(some, policy.generate(some, 8, first), strict=True):
            rewards += verify(one, [rollout.text for rollout in rollouts])
    assert 0.001 <= sum(rewards) / len(rewards) <= 0.02
