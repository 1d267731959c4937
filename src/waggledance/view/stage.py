"""The stage: what is shown just now, encoded once for everybody who looks.

A view calls `show` from its own thread; the server asks for `news`: the parts that changed since a reader
last asked. Nothing is reckoned while nobody looks.
"""

from dataclasses import dataclass, field
from threading import Lock

import msgspec

from waggledance.view.scene import Swarms, scene, told_since


@dataclass(slots=True)
class Reader:
    """What one who looks has been sent already."""

    versions: dict[str, int] = field(default_factory=dict[str, int])
    said: dict[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class Shown:
    swarms: Swarms
    elapsed_seconds: float
    left_seconds: float | None
    silent_seconds: float


class Stage:
    def __init__(self, run: str) -> None:
        self._run = run
        self._lock = Lock()
        self._shown = Shown({}, 0.0, None, 0.0)
        self._encoded: Shown | None = None
        self._parts: dict[str, tuple[int, bytes]] = {}

    @property
    def swarms(self) -> Swarms:
        return self._shown.swarms

    @property
    def silent_seconds(self) -> float:
        return self._shown.silent_seconds

    def show(
        self,
        swarms: Swarms,
        elapsed_seconds: float,
        left_seconds: float | None = None,
        silent_seconds: float = 0.0,
    ) -> None:
        self._shown = Shown(dict(swarms), elapsed_seconds, left_seconds, silent_seconds)

    def news(self, reader: Reader) -> list[tuple[str, bytes]]:
        """Name and JSON of each part that the reader does not have as it is now."""
        shown = self._shown
        with self._lock:
            if self._encoded is not shown:
                self._encode(shown)
            parts = dict(self._parts)
        news = [
            (name, encoded)
            for name, (version, encoded) in parts.items()
            if reader.versions.get(name) != version
        ]
        reader.versions = {name: version for name, (version, _) in parts.items()}
        said = told_since(shown.swarms, reader.said)
        reader.said = {label: swarm.said_count for label, swarm in shown.swarms.items()}
        return [*news, ("said", msgspec.json.encode(said))] if said else news

    def _encode(self, shown: Shown) -> None:
        parts = scene(
            self._run, shown.swarms, shown.elapsed_seconds, shown.left_seconds, shown.silent_seconds
        )
        for name, part in parts.items():
            encoded = msgspec.json.encode(part)
            version, before = self._parts.get(name, (0, b""))
            if encoded != before:
                self._parts[name] = (version + 1, encoded)
        self._encoded = shown
