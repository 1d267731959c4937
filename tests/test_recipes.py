"""Recipes are settings that load: short, commented, and each key of them known."""

from pathlib import Path

import pytest

from waggledance.config import NodeConfig, read_config

RECIPES = sorted((Path(__file__).parents[1] / "recipes").glob("*.toml"))
LINES_LIMIT = 30


def test_there_is_one_for_every_place() -> None:
    assert [path.stem for path in RECIPES] == ["gpu", "home", "lab", "laptop", "mac"]


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_loads_and_is_short(path: Path) -> None:
    text = path.read_text()
    config = read_config(path)
    assert config != NodeConfig()
    assert config.policy.kind == "hf"
    assert len(text.splitlines()) <= LINES_LIMIT
    assert text.startswith("# ")
    assert f"waggle up recipes/{path.name}" in text
