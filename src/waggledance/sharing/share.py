"""Share: which of a node's own groups the others get."""

from collections.abc import Sequence

from waggledance.rollout import Group, ScoredGroup

EVERYTHING, INFORMATIVE, NOTHING = "everything", "informative", "nothing"


def to_share(own: Sequence[ScoredGroup], what: str) -> list[Group]:
    """The paper shares everything; a receiver drops what carries no signal anyway."""
    if what == NOTHING:
        return []
    return [scored.group for scored in own if what == EVERYTHING or scored.informative]
