"""Trackers: where else a run's numbers go, for people who look at runs somewhere of their own.

A round and its numbers in; each tracker is one small class behind `Tracker`, and its library is imported only
when it is asked for. None asks anything, all write into the run's folder.
"""

import importlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from waggledance.errors import MissingError
from waggledance.view.metrics import COUNTERS, GAUGES
from waggledance.view.state import NodeState

KINDS = ("tensorboard",)


class Tracker(Protocol):
    def log(self, round_: int, numbers: Mapping[str, float]) -> None: ...
    def close(self) -> None: ...


def numbers(node: NodeState) -> dict[str, float]:
    """The same by the same names as in `/metrics`."""
    known = {name: number(node) for name, (_, number) in (*GAUGES.items(), *COUNTERS.items())}
    return {name: float(value) for name, value in known.items() if value is not None}


def open_tracker(kind: str, folder: Path) -> Tracker:
    assert kind in KINDS, kind
    return TensorBoard(folder / "tensorboard")


class TensorBoard:
    """`tensorboard --logdir runs`"""

    def __init__(self, folder: Path) -> None:
        _wanted("tensorboard")
        self._protocol: Any = importlib.import_module("tensorboard.compat.proto.summary_pb2")
        self._events: Any = importlib.import_module("tensorboard.compat.proto.event_pb2")
        writing: Any = importlib.import_module("tensorboard.summary.writer.event_file_writer")
        self._writer = writing.EventFileWriter(str(folder))

    def log(self, round_: int, numbers: Mapping[str, float]) -> None:
        values = [
            self._protocol.Summary.Value(tag=name, simple_value=value) for name, value in numbers.items()
        ]
        summary = self._protocol.Summary(value=values)
        self._writer.add_event(self._events.Event(step=round_, wall_time=time.time(), summary=summary))

    def close(self) -> None:
        self._writer.close()


def _wanted(module: str) -> None:
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise MissingError(
            f"track = {module!r}: {module} is not installed; pip install 'waggledance[{module}]'"
        ) from error
