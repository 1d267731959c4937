"""A lab's folder: the bank, every trial's result as soon as there is one, and what comes of them.

Files are written whole or not at all. A trial's result carries a digest of its plan, so that a folder never
mixes two experiments; a trial whose file is there is not run again.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from waggledance.errors import MissingError, StorageError, UsageError
from waggledance.lab.bank import Bank, read_bank, write_bank
from waggledance.lab.plan import TrialPlan
from waggledance.lab.record import TrialResult
from waggledance.whole import write_whole


class _Kept(msgspec.Struct, frozen=True):
    plan: str
    result: TrialResult


@dataclass(frozen=True, slots=True)
class Folder:
    path: Path

    @property
    def bank_path(self) -> Path:
        return self.path / "bank.json.gz"

    def bank(self) -> Bank | None:
        return read_bank(self.bank_path) if self.bank_path.exists() else None

    def keep_bank(self, bank: Bank) -> None:
        write(self.bank_path, write_bank(bank))

    def result(self, plan: TrialPlan) -> TrialResult | None:
        """None where the trial has not been run."""
        path = self._trial(plan)
        try:
            kept = msgspec.json.decode(path.read_bytes(), type=_Kept)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise MissingError(f"{path} is no trial's result: {error}; remove it to run it again") from error
        if kept.plan != digest_of(plan):
            raise UsageError(
                f"{self.path} holds trials of another plan ({path.name}); name another folder with --dir"
            )
        return kept.result

    def keep_result(self, plan: TrialPlan, result: TrialResult) -> None:
        write(self._trial(plan), msgspec.json.encode(_Kept(digest_of(plan), result)))

    def _trial(self, plan: TrialPlan) -> Path:
        return self.path / "trials" / f"{plan.label}.json"


def digest_of(plan: TrialPlan) -> str:
    """Over what the file says, so that stored trials are those of their file in later versions too."""
    seats = [(seat.said, seat.warm_up, seat.every, seat.away) for seat in plan.seats]
    trial = (plan.configuration, plan.seed, plan.rounds, seats, plan.hears, plan.delay_rounds, plan.lost)
    content = msgspec.json.encode(trial, order="deterministic")
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def unfinished(folder: Folder, plans: Sequence[TrialPlan]) -> list[TrialPlan]:
    return [plan for plan in plans if folder.result(plan) is None]


def write(path: Path, content: bytes) -> None:
    """One of a lab's files; its folder is made where there is none."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {error.strerror}; free some space or name another folder"
        ) from error
    write_whole(path, content, "the lab's")
