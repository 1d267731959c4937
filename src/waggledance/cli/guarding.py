"""What a node guards itself with: its gate and its ledger, as settings and swarm want them.

In an open swarm nobody vouches for anybody, so there the gate judges and the ledger weighs, whatever the
settings say. The ledger lies in the run's folder, so that who sank stays there when the node starts again.
"""

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from waggledance.config import NodeConfig
from waggledance.errors import UsageError
from waggledance.sharing.gate import Gate, GuardedGate, OpenGate
from waggledance.sharing.ledger import Ledger, read_ledger

if TYPE_CHECKING:
    from waggledance.model import Model
    from waggledance.seams import Reader

LEDGER = "ledger.json"
EVERY_S = 5.0
"""How often the ledger is written at most: what a kill costs is a few rounds' accounts."""


def gate_for(config: NodeConfig, model: "Model | None", *, is_open: bool) -> Gate:
    if is_open and config.gate.kind == "open":
        raise UsageError("gate.kind = 'open': in an open swarm the gate is always guarded; leave it out")
    if not is_open and config.gate.kind != "guarded":
        return OpenGate()
    if config.mix.own == 0:
        raise UsageError(
            "mix.own = 0: the gate measures others' text by this node's own; "
            "let it answer a task itself, or set gate.kind to 'open' in a private swarm"
        )
    return GuardedGate(_reader(config, model), config.gate.foreign_share)


def prefers_useful(config: NodeConfig, *, is_open: bool) -> bool:
    if is_open and config.pool.prefer == "nobody":
        raise UsageError("pool.prefer = 'nobody': in an open swarm the useful come first; leave it out")
    return is_open or config.pool.prefer == "useful"


def open_ledger(folder: Path, *, is_open: bool) -> Ledger:
    """The one that an earlier start left, or a new one."""
    try:
        content = (folder / LEDGER).read_bytes()
    except OSError:
        content = b""
    return read_ledger(content, is_open=is_open)


class LedgerFile:
    def __init__(self, folder: Path, ledger: Ledger) -> None:
        self._path = folder / LEDGER
        self._ledger = ledger
        self._due = 0.0

    def write(self, *, at_once: bool = False) -> None:
        """Whole or not at all. Where the disk is full the old one stays: the journal, which matters more,
        will say so."""
        if not at_once and time.monotonic() < self._due:
            return
        self._due = time.monotonic() + EVERY_S
        beside = self._path.with_name(f".{self._path.name}.new")
        with suppress(OSError):
            with beside.open("wb") as file:
                file.write(self._ledger.encoded())
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, self._path)


def _reader(config: NodeConfig, model: "Model | None") -> "Reader | None":
    """None for a node without weights: it can say nothing of likelihood."""
    if model is None:
        return None
    from waggledance.policy.reader import HFReader

    return HFReader(model, config.policy.temperature, config.policy.max_tokens)
