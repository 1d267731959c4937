"""The picture: a PNG of the size promised, the same bytes for the same run, whole or not there."""

import struct
from pathlib import Path

import pytest

from view_run import swarm_state
from waggledance.errors import StorageError
from waggledance.view.picture import draw_curves
from waggledance.view.state import SwarmState


def size_of(png: bytes) -> tuple[int, int]:
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def test_a_picture_of_two_swarms(tmp_path: Path) -> None:
    swarms = {"silo": swarm_state(30, 30, together=False), "swarm": swarm_state(30, 30)}
    first, again = tmp_path / "first.png", tmp_path / "again.png"
    draw_curves(first, swarms, title="Eight tiny models, $alone$ and [bold]together")
    draw_curves(again, swarms, title="Eight tiny models, $alone$ and [bold]together")
    assert size_of(first.read_bytes()) == (1600, 800)
    assert first.read_bytes() == again.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again.png", "first.png"]


@pytest.mark.parametrize(
    "swarms",
    [
        {},
        {"silo": SwarmState(), "swarm": SwarmState()},
        {"_a$b$": swarm_state(1)},
        {"swarm": swarm_state(2, nodes=1)},
    ],
)
def test_a_picture_of_hardly_anything(tmp_path: Path, swarms: dict[str, SwarmState]) -> None:
    draw_curves(tmp_path / "p.png", swarms)
    assert size_of((tmp_path / "p.png").read_bytes()) == (1600, 800)


def test_a_picture_replaces_an_older_one(tmp_path: Path) -> None:
    path = tmp_path / "p.png"
    path.write_text("old")
    draw_curves(path, {"swarm": swarm_state(2)})
    assert size_of(path.read_bytes()) == (1600, 800)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"nowhere/p\.png cannot be written"):
        draw_curves(tmp_path / "nowhere" / "p.png", {})
