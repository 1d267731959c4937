"""A task: one verifiable question, named by (source, index).

Comes from a source, which builds the same task from the same index on every machine; so a group on the
wire names its task and carries neither the question nor the truth. A task must not know who answers it.
"""

from dataclasses import dataclass
from typing import NewType

SourceName = NewType("SourceName", str)
Digest = NewType("Digest", str)
"""A hash over a source's canonical items: two nodes with equal digests build equal tasks."""


@dataclass(frozen=True, slots=True)
class Task:
    source: SourceName
    index: int
    question: str
    rule: str
    """The name of the rule in `verify.rules` that turns an answer into a reward."""
    truth: str
    """What the rule compares with, as text: rules parse it, nothing evaluates it."""
    partial: bool = False
    """Pay partial credit where the rule can. Off: a reward is 1 or 0."""
