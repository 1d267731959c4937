"""Keeping a run: after every round what a restart needs, and at the start going on after the newest one.

Whole checkpoints cost what the weights weigh, records what the round's text weighs; so records are
written every round and whole ones as often as they cost little. A full disk ends nothing: it is said, and
tried again.
"""

import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from waggledance.cli.assemble import Assembled
from waggledance.config import NodeConfig
from waggledance.errors import StorageError, UsageError
from waggledance.events import Resumed, Unsaved
from waggledance.journal import Journal
from waggledance.lasting import Belongs, Checkpoints, Found

CHECKPOINTS = "checkpoints"
"""In a run's folder."""
LARGEST_SHARE = 0.05
"""Of a run's time that may go into whole checkpoints."""
RETRY_S = 10.0
"""After a full disk."""


class Keeping:
    def __init__(
        self,
        config: NodeConfig,
        parts: Assembled,
        folder: Path,
        journal: Journal,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._every_s = config.checkpoint.every_s
        self._off = config.checkpoint.kind == "none"
        self._parts = parts
        self._folder = folder / CHECKPOINTS
        self._journal = journal
        self._clock = clock
        self._checkpoints = Checkpoints(self._folder, clock, config.checkpoint.experience_mb << 20)
        model = config.policy.model if parts.model else config.policy.kind
        self._belongs = Belongs(model, config.learner.kind)
        self._due = 0.0
        self._whole_round: int | None = None
        self._unsaved: str | None = None

    def begin(self) -> None:
        """Goes on where the run was, or keeps where it starts."""
        if self._off:
            return
        start = self._clock()
        found = self._checkpoints.find()
        if found is None:
            self._keep(whole=True)
            return
        self._check(found)
        self._parts.node.restore(found.round, found.parts)
        self._parts.learner.restore(found.tensors)
        for record in found.records:
            self._parts.node.replay(record)
        if found.damaged:
            self._keep(whole=True)
        else:
            self._checkpoints.resume()
            self._whole_round = found.round
        self._due = self._clock() + self._every_s
        took = self._clock() - start
        self._journal.tell(Resumed(self._parts.node.round_number, len(found.records), took, found.damaged))

    def round_done(self) -> None:
        if self._off:
            return
        if self._unsaved is None:
            self._keep(whole=False)
        # After a round that was lost to a full disk, records would have nothing to follow.
        if self._clock() >= self._due:
            self._keep(whole=True)

    def end(self) -> None:
        """A run that ended well begins again without learning anything again."""
        if not self._off and self._whole_round != self._parts.node.round_number:
            self._keep(whole=True)

    def close(self) -> None:
        self._checkpoints.close()

    def _keep(self, *, whole: bool) -> None:
        try:
            if whole:
                self._write_whole()
            else:
                self._checkpoints.record(self._parts.node.record())
        except StorageError as error:
            self._due = self._clock() + RETRY_S
            self._say(str(error))
        else:
            self._say(None)

    def _write_whole(self) -> None:
        start = self._clock()
        node, tensors = self._parts.node, self._parts.learner.kept()
        self._check_room(tensors.values())
        self._checkpoints.write_whole(node.round_number, self._belongs, node.kept(), tensors)
        self._whole_round = node.round_number
        took = self._clock() - start
        self._due = start + max(self._every_s, took / LARGEST_SHARE)

    def _check_room(self, tensors: Any) -> None:
        """Before writing a gigabyte for nothing."""
        needed = sum(tensor.nbytes for tensor in tensors)
        free = shutil.disk_usage(self._folder.parent).free
        if free < needed:
            raise StorageError(
                f"disk full: {self._folder} has {free / 1e6:.0f} MB free, a checkpoint needs "
                f"{needed / 1e6:.0f} MB; free some space"
            )

    def _say(self, error: str | None) -> None:
        """Once when it begins and once when it is over."""
        if (error is None) != (self._unsaved is None):
            self._journal.tell(Unsaved(error))
            since = f"rounds from {self._parts.node.round_number} on are not kept; training goes on"
            print(f"waggle: {error}; {since}" if error else "waggle: rounds are kept again", file=sys.stderr)
        self._unsaved = error

    def _check(self, found: Found) -> None:
        for what, there, here in (
            ("policy.model", found.belongs.model, self._belongs.model),
            ("learner.kind", found.belongs.learner, self._belongs.learner),
        ):
            if there != here:
                raise UsageError(
                    f"{self._folder.parent} holds a run with {what} = {there!r}, not {here!r}; "
                    "go on with that one, or name another folder with --dir"
                )
