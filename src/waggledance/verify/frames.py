"""What a cage, its warden and its workers say to each other, as bytes.

Orders to the warden are a letter and a number. A job is groups without what no rule asks for; its texts are
bytes, for a completion may hold half a surrogate pair. Workers have read hostile text: what they answer is
bounded and typed before it is believed.
"""

import math
import struct
from collections.abc import Sequence

import msgspec

from waggledance.seams import Failure, Pair, Verdict
from waggledance.task import SourceName, Task

FORK, KILL = b"f", b"k"
ORDER = struct.Struct("!cq")
LENGTH = struct.Struct("!I")
ANSWER_LIMIT_BYTES = 64 * 1024


class Group(msgspec.Struct, frozen=True, array_like=True):
    source: str
    index: int
    rule: str
    truth: bytes
    partial: bool
    texts: tuple[bytes, ...]


_encoder = msgspec.msgpack.Encoder()
_jobs = msgspec.msgpack.Decoder(tuple[Group, ...])
_answers = msgspec.msgpack.Decoder(tuple[float, ...] | str)


def job(pairs: Sequence[Pair]) -> bytes:
    groups = [
        Group(task.source, task.index, task.rule, _bytes(task.truth), task.partial, tuple(map(_bytes, texts)))
        for task, texts in pairs
    ]
    return framed(_encoder.encode(groups))


def read_job(content: bytes) -> list[Pair]:
    return [
        (
            Task(SourceName(group.source), group.index, "", group.rule, _text(group.truth), group.partial),
            tuple(map(_text, group.texts)),
        )
        for group in _jobs.decode(content)
    ]


def answer(verdict: Verdict) -> bytes:
    return framed(_encoder.encode(verdict.value if isinstance(verdict, Failure) else verdict))


def read_answer(content: bytes, texts: int) -> Verdict:
    """Anything but one reward in [0, 1] a text is a failure."""
    try:
        said = _answers.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Failure.RAISED
    if isinstance(said, str) or len(said) != texts:
        return Failure.RAISED
    return said if all(math.isfinite(reward) and 0 <= reward <= 1 for reward in said) else Failure.RAISED


def framed(content: bytes) -> bytes:
    return LENGTH.pack(len(content)) + content


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(content: bytes) -> str:
    return content.decode("utf-8", "surrogatepass")
