"""`waggle export`: a run's model as a folder that loads anywhere, its experience as a dataset."""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from waggledance.cli.card import card_of
from waggledance.cli.keeping import CHECKPOINTS
from waggledance.cli.newest import newest_model, settings_of
from waggledance.cli.training import JOURNAL
from waggledance.cli.verb import add_verb
from waggledance.cli.watching import Watching
from waggledance.errors import MissingError, StorageError, UsageError
from waggledance.lasting import Record, experience
from waggledance.rollout import name_of

TOKEN, HUB = "HF_TOKEN", "HF_ENDPOINT"
"""Environment variables, as the hub's own tools have them."""
DEFAULT_HUB = "https://huggingface.co"
CARD = "README.md"
ROWS_AT_ONCE = 4096

DESCRIPTION = """A run's model, as its newest round left it, as a Hugging Face folder with a model card;
with --dataset its experience too: every completion that it trained on, by whom, and what it was paid. Nothing
leaves this machine but with --push."""
EXAMPLE = """example:
  waggle export runs/alice --to alice-model
  waggle export runs/alice --dataset experience.parquet
  HF_TOKEN=hf_… waggle export runs/alice --push alice/alice-model"""


class Row(msgspec.Struct, frozen=True):
    """One completion that was trained on."""

    round: int
    author: str
    source: str
    index: int
    question: str
    text: str
    finished: bool
    tokens: int
    mean_logprob: float
    reward: float
    weight: float


def add_parser(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "export",
        "a run's model as a folder, its experience as a dataset",
        description=DESCRIPTION,
        example=EXAMPLE,
        run=run,
    )
    parser.add_argument("run_folder", type=Path, metavar="RUN", help="a run's folder")
    parser.add_argument("--to", type=Path, metavar="FOLDER", help="where the model goes (RUN/export)")
    parser.add_argument(
        "--dataset", type=Path, metavar="FILE", help="write the experience: .jsonl or .parquet"
    )
    parser.add_argument(
        "--push", metavar="NAME", help=f"put the folder on the hub too; the token is in {TOKEN}"
    )
    parser.add_argument("--license", help="of the model (the base model's, where its folder tells)")


def run(options: argparse.Namespace) -> int:
    folder: Path = options.run_folder
    settings_of(folder)
    _check_dataset(options.dataset)
    token = _token() if options.push else ""
    done: dict[str, object] = {}
    if options.dataset is None or options.to is not None or options.push:
        done |= _export_model(folder, options.to or folder / "export", options.license)
    if options.dataset is not None:
        done |= {"dataset": str(options.dataset), "rows": _export_dataset(folder, options.dataset)}
    if options.push:
        done["pushed"] = _pushed(Path(str(done["model"])), options.push, token)
    print(json.dumps(done) if options.json else "\n".join(f"{what}: {value}" for what, value in done.items()))
    return 0


def _export_model(folder: Path, to: Path, licence: str | None) -> dict[str, object]:
    from waggledance.checkpoint import save_model

    model, round_number = newest_model(folder)
    watching = Watching({"node": [folder / JOURNAL]})
    try:
        watching.read()
    finally:
        watching.close()
    card = card_of(settings_of(folder), list(watching.states["node"].nodes.values())[-1], licence)
    save_model(model, to, {CARD: card})
    return {"model": str(to), "round": round_number}


def _check_dataset(file: Path | None) -> None:
    if file is None:
        return
    if file.suffix not in (".jsonl", ".parquet"):
        raise UsageError(f"--dataset {file}: end its name in .jsonl or .parquet")
    if file.suffix == ".parquet" and find_spec("pyarrow") is None:
        raise MissingError(
            f"--dataset {file}: Parquet needs the extra `parquet` (pip install 'waggledance[parquet]'); "
            "or take .jsonl"
        )


def _export_dataset(folder: Path, file: Path) -> int:
    beside = file.with_name(f".{file.name}.new")
    write = _write_parquet if file.suffix == ".parquet" else _write_jsonl
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        count = write(beside, _rows(folder))
        beside.replace(file)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise StorageError(f"cannot write {file}: {error.strerror}; name another file") from error
    return count


def _rows(folder: Path) -> Iterator[Row]:
    for record in experience(folder / CHECKPOINTS):
        yield from _rows_of(record)


def _rows_of(record: Record) -> Iterator[Row]:
    for scored in record.batch:
        group, task = scored.group, scored.task
        for rollout, reward in zip(group.rollouts, scored.rewards, strict=True):
            yield Row(
                round=record.round,
                author=name_of(group.author),
                source=task.source,
                index=task.index,
                question=task.question,
                text=rollout.text,
                finished=rollout.finished,
                tokens=rollout.tokens,
                mean_logprob=rollout.mean_logprob,
                reward=reward,
                weight=scored.weight,
            )


def _write_jsonl(file: Path, rows: Iterator[Row]) -> int:
    count = 0
    with file.open("wb") as out:
        for row in rows:
            out.write(msgspec.json.encode(row) + b"\n")
            count += 1
    return count


def _write_parquet(file: Path, rows: Iterator[Row]) -> int:
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    kinds = {int: arrow.int64(), str: arrow.string(), bool: arrow.bool_(), float: arrow.float64()}
    schema = arrow.schema([(field.name, kinds[field.type]) for field in msgspec.structs.fields(Row)])
    count = 0
    with parquet.ParquetWriter(file, schema) as writer:
        while some := [row for row, _ in zip(rows, range(ROWS_AT_ONCE), strict=False)]:
            plain = [{**msgspec.structs.asdict(row), "text": _sound(row.text)} for row in some]
            writer.write_table(arrow.Table.from_pylist(plain, schema=schema))
            count += len(some)
    return count


def _sound(text: str) -> str:
    """Parquet's strings are UTF-8; a model's may hold halves of characters."""
    return text.encode("utf-8", "replace").decode()


def _token() -> str:
    token = os.environ.get(TOKEN, "")
    if not token:
        raise UsageError(f"--push: no token; put one that may write into {TOKEN}")
    return token


def _pushed(folder: Path, name: str, token: str) -> str:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HFValidationError

    from waggledance.model import TRANSPORT_ERROR

    hub = os.environ.get(HUB, DEFAULT_HUB)
    api = HfApi(endpoint=hub, token=token)
    try:
        print(f"pushing {folder} to {hub}/{name}", file=sys.stderr)
        api.create_repo(name, exist_ok=True)
        api.upload_folder(repo_id=name, folder_path=folder, commit_message="Post-trained with Waggledance")
    except HFValidationError as error:
        raise UsageError(f"--push {name}: {' '.join(str(error).split())}") from error
    except (OSError, ValueError, KeyError, TRANSPORT_ERROR) as error:  # what is no hub may answer anything
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise MissingError(f"{hub} does not take {name}: {why}; the folder stands in {folder}") from error
    return f"{hub}/{name}"
