"""The ledger: what every author gave, what came of it, and so whose groups to sample first.

An author is as useful as the credit that its groups carried for each that was looked at; lately counts more.
Useful givers weigh more, who gives rubbish sinks to a floor, and who is unknown weighs half of the average:
less than who gives, but it may be the best of all. Names are free, so those whom nothing tells apart weigh
together as two nodes at most: who share a founder's grant, and in an open swarm all who have not proven
themselves yet. It holds numbers only; it knows no tasks, rewards or network.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from waggledance.rollout import Author, ScoredGroup

HALF_LIFE_ROUNDS = 50
"""After so many rounds what an author gave counts half."""
PRIOR_GROUPS, PRIOR_WEIGHT = 8.0, 0.5
"""Until about so many of its groups were looked at, an author counts as that useful beside the average."""
LIGHTEST, HEAVIEST = 0.05, 4.0
"""An author's weight beside the average one's: nobody is lost for good, and nobody drowns the rest."""
REFUSED_COSTS_GROUPS = 2.0
"""What was refused counts as so many groups that were looked at and carried nothing."""
PROVEN_GROUPS = 16
"""So many useful groups make a stranger one of those who are known, in an open swarm."""
CROWD_WEIGHT = 2.0
"""What those who cannot be told apart weigh together at most: as much as so many of the others."""
LIMIT_AUTHORS = 4096
"""Accounts kept; who was heard longest ago is forgotten first."""

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Amount = Annotated[float, Meta(ge=0, le=1e15)]


class Account(msgspec.Struct, kw_only=True):
    """One author's, since this node first heard of it."""

    given: Count = 0
    """Groups of its own that came."""
    looked: Count = 0
    """Of those, how many were verified here."""
    taken: Count = 0
    """Of those, how many were trained on."""
    useful: Amount = 0.0
    """The credit that these carried."""
    refused: dict[str, Count] = msgspec.field(default_factory=dict[str, int])
    """What was not let in, by reason."""
    lately_looked: Amount = 0.0
    lately_useful: Amount = 0.0
    round: Count = 0
    """In which `lately` was counted."""


_decoder = msgspec.json.Decoder(dict[str, Account])


class Ledger:
    def __init__(self, *, is_open: bool = False, accounts: Mapping[Author, Account] | None = None) -> None:
        """In an open swarm nobody vouches for anybody: there, authors have to prove themselves."""
        self._is_open = is_open
        self._accounts = dict(accounts or {})

    def __getitem__(self, author: Author) -> Account:
        return self._accounts.get(author, Account())

    def __len__(self) -> int:
        return len(self._accounts)

    @property
    def authors(self) -> tuple[Author, ...]:
        """Who has an account, heard of newest last."""
        return tuple(self._accounts)

    def heard(self, authors: Iterable[Author], now: int) -> None:
        """Groups of these authors came in round `now`; one that gave several stands there as often."""
        for author in authors:
            self._lately(author, now).given += 1

    def looked(self, author: Author, now: int) -> None:
        """A group of the author's was verified."""
        account = self._lately(author, now)
        account.looked += 1
        account.lately_looked += 1

    def took(self, scored: ScoredGroup, now: int) -> None:
        """A group was trained on."""
        account, credit = self._lately(scored.group.author, now), credit_of(scored)
        account.taken += 1
        account.useful += credit
        account.lately_useful += credit

    def refused(self, author: Author, reason: str, count: int, now: int) -> None:
        account = self._lately(author, now)
        account.refused[reason] = account.refused.get(reason, 0) + count
        account.lately_looked += REFUSED_COSTS_GROUPS * count

    def weights(self, authors: Iterable[Author], grants: Mapping[Author, str]) -> dict[Author, float]:
        """How much each of these weighs when one is drawn; the average author weighs about one."""
        here = list(dict.fromkeys(authors))
        average = self._average()
        alone = {author: self._weight(self[author], average) for author in here}
        weights = dict(alone)
        for crowd in self._crowds(here, grants):
            together = sum(alone[author] for author in crowd)
            others = (sum(alone.values()) - together) / (len(here) - len(crowd))
            for author in crowd:
                weights[author] *= min(1.0, CROWD_WEIGHT * others / together)
        return weights

    def _crowds(self, here: list[Author], grants: Mapping[Author, str]) -> list[list[Author]]:
        """Those whom nothing tells apart. Where all are of one crowd, all weigh what they are worth."""
        crowds: dict[str, list[Author]] = {}
        for author in here:
            crowd = self._crowd(author, grants)
            if crowd is not None:
                crowds.setdefault(crowd, []).append(author)
        return [crowd for crowd in crowds.values() if len(crowd) < len(here)]

    def _crowd(self, author: Author, grants: Mapping[Author, str]) -> str | None:
        if not self._is_open:
            return grants.get(author)
        return None if self[author].taken >= PROVEN_GROUPS else ""

    def _weight(self, account: Account, average: float) -> float:
        if average == 0.0:
            return 1.0
        useful = account.lately_useful + PRIOR_GROUPS * PRIOR_WEIGHT * average
        useful /= account.lately_looked + PRIOR_GROUPS
        return max(LIGHTEST, min(HEAVIEST, useful / average))

    def _average(self) -> float:
        """Credit a group, over everybody."""
        looked = sum(account.lately_looked for account in self._accounts.values())
        useful = sum(account.lately_useful for account in self._accounts.values())
        return useful / looked if looked else 0.0

    def _lately(self, author: Author, now: int) -> Account:
        """The author's account, with what lies back made lighter."""
        account = self._accounts.pop(author, None) or Account(round=now)
        faded = 0.5 ** (max(0, now - account.round) / HALF_LIFE_ROUNDS)
        account.lately_looked *= faded
        account.lately_useful *= faded
        account.round = now
        self._accounts[author] = account
        if len(self._accounts) > LIMIT_AUTHORS:
            del self._accounts[next(iter(self._accounts))]
        return account

    def encoded(self) -> bytes:
        """As a file keeps it; `read_ledger` reads it back."""
        return msgspec.json.encode(self._accounts)


def read_ledger(content: bytes, *, is_open: bool = False) -> Ledger:
    """What cannot be read was never written by a ledger: it counts as an empty one."""
    try:
        rows = _decoder.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Ledger(is_open=is_open)
    newest = list(rows.items())[-LIMIT_AUTHORS:]
    return Ledger(is_open=is_open, accounts={Author(author): account for author, account in newest})


def credit_of(scored: ScoredGroup) -> float:
    """How much a group has to teach: its rewards' mean distance from their mean; 0 to one half."""
    mean = sum(scored.rewards) / max(1, len(scored.rewards))
    return sum(abs(reward - mean) for reward in scored.rewards) / max(1, len(scored.rewards))
