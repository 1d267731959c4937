"""Draws: which task of a source an author answers.

The index hangs on the author's key, its round and the place in that round, and on nothing it could choose
freely: nobody picks easy questions, and whoever takes a group can check that its author did not.
"""

from waggledance.seed import derive
from waggledance.task import SourceName

PLACES_LIMIT = 1024
"""Groups of its own that a node may generate in a round."""


def drawn_index(key: str, round_number: int, place: int, source: SourceName, size: int) -> int:
    """By the key's fingerprint. Every node of every version must come to the same."""
    return derive("draw", key, round_number, place, source) % size
