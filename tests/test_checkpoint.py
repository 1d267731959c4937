"""Models written to disk: whole or not at all, and readable without this package."""

# pyright: standard

import os
import resource
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from test_model import load_tiny, toy, toy_folder
from waggledance.checkpoint import save_model
from waggledance.errors import StorageError
from waggledance.model import Model, load_model


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def pages_of(folder: Path) -> int:
    """Of 4 KiB, as small disks count."""
    return sum(-(-file.stat().st_size // 4096) for file in folder.iterdir())


def refused(model: Model, folder: Path) -> str:
    assert StorageError.exit_code == 7
    with pytest.raises(StorageError) as caught:
        save_model(model, folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@contextmanager
def small_disk(folder: Path, options: str) -> Iterator[Path]:
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        pytest.skip("mounting a small disk takes root on Linux")
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"mounting a small disk is not allowed here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        # However the test ended, and though it may still hold tensors that lie in a file there.
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt_neox"])
def test_a_saved_model_loads_without_this_package(tmp_path: Path, kind: str) -> None:
    model = toy(tmp_path / "toy", kind)
    with torch.no_grad():
        next(model.network.parameters()).add_(0.25)
    save_model(model, tmp_path / "deep" / "down" / "saved")
    folder = tmp_path / "deep" / "down" / "saved"
    network = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    ids = torch.tensor([tokenizer("what is it?")["input_ids"]])
    with torch.no_grad():
        assert torch.equal(network(input_ids=ids).logits, model.network(input_ids=ids).logits)
    assert tokenizer.eos_token_id == model.end_ids[0]
    assert sorted(path.name for path in folder.parent.iterdir()) == ["saved"]


def test_the_tiny_model_comes_back_with_template_and_settings(tmp_path: Path) -> None:
    save_model(load_tiny(), tmp_path / "saved")
    again = load_model(str(tmp_path / "saved"))
    assert again.tokenizer.chat_template == load_tiny().tokenizer.chat_template
    assert (again.end_ids, again.pad_id, again.window) == ((1,), 0, 1024)
    for mine, theirs in zip(again.network.parameters(), load_tiny().network.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_everybody_may_read_what_was_saved(tmp_path: Path) -> None:
    mask = os.umask(0o022)
    try:
        save_model(toy(tmp_path / "toy"), tmp_path / "saved")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "saved").stat().st_mode) == 0o755
    assert {stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "saved").iterdir()} == {0o644}


def test_an_existing_folder_is_replaced_whole(tmp_path: Path) -> None:
    model = toy(tmp_path / "toy")
    save_model(model, tmp_path / "fresh")
    (tmp_path / "saved" / "inner").mkdir(parents=True)
    (tmp_path / "saved" / "inner" / "old.txt").write_text("old")
    (tmp_path / "saved" / "model-00001-of-00002.safetensors").write_text("old")
    save_model(model, tmp_path / "saved")
    assert contents(tmp_path / "saved") == contents(tmp_path / "fresh")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fresh", "saved", "toy"]


def test_a_model_may_be_saved_over_the_folder_it_came_from(tmp_path: Path) -> None:
    model = toy(tmp_path / "toy")
    with torch.no_grad():
        next(model.network.parameters()).add_(0.25)
    save_model(model, tmp_path / "toy")
    again = load_model(str(tmp_path / "toy"))
    assert torch.equal(next(again.network.parameters()), next(model.network.parameters()))


def test_a_file_in_the_way_stays(tmp_path: Path) -> None:
    model = toy(tmp_path / "toy")
    (tmp_path / "file").write_text("mine")
    assert "it is a file" in refused(model, tmp_path / "file")
    assert "name another folder" in refused(model, tmp_path / "file" / "below")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("pages_short", [700, 40, 10, 8, 5, 2, 1])
def test_a_full_disk_keeps_the_model_of_before(tmp_path: Path, pages_short: int) -> None:
    """The tiny model is to replace a toy: its weights do not fit, or its tokenizer or settings do not."""
    save_model(load_tiny(), tmp_path / "saved")
    pages = pages_of(toy_folder(tmp_path / "toy")) + pages_of(tmp_path / "saved")
    with small_disk(tmp_path / "disk", f"size={4 * (pages - pages_short)}k") as disk:
        shutil.copytree(tmp_path / "toy", disk / "saved")
        before = contents(disk)
        message = refused(load_tiny(), disk / "saved")
        assert message == f"disk full: the model needs 3 MB at {disk / 'saved'}; free some space"
        assert contents(disk) == before
        assert [path.name for path in disk.iterdir()] == ["saved"]
        assert load_model(str(disk / "saved")).end_ids == (1,)


@pytest.mark.parametrize("more_files", range(7))
def test_a_disk_that_can_hold_no_more_files_keeps_the_model_of_before(
    tmp_path: Path, more_files: int
) -> None:
    """Saving makes five files and two folders: whichever is the first that does not fit."""
    model = toy(tmp_path / "toy")
    there = len(list((tmp_path / "toy").iterdir())) + 2  # the disk's root, and the folder
    with small_disk(tmp_path / "disk", f"size=9m,nr_inodes={there + more_files}") as disk:
        shutil.copytree(tmp_path / "toy", disk / "saved")
        before = contents(disk)
        assert refused(model, disk / "saved").startswith("disk full: ")
        assert contents(disk) == before
        assert [path.name for path in disk.iterdir()] == ["saved"]


def test_weights_that_cannot_be_written_to_the_end_leave_the_model_of_before(tmp_path: Path) -> None:
    """A limit on the length of files stops the writer halfway, and needs no root."""
    toy_folder(tmp_path / "saved")
    before = contents(tmp_path)
    model = load_tiny()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limits[1]))
    try:
        message = refused(model, tmp_path / "saved")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert message.startswith(f"cannot write the model to {tmp_path / 'saved'}: ")
    assert contents(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]
