"""A stranger for fault tests: a bare Zenoh session that hears what it can and puts what it likes.

`python stranger.py CONFIG KEYS` (Zenoh's JSON; the expression it listens to); every line on standard input, a
JSON list of [key, message in hexadecimal], is put and answered with all that was heard so far, in the same
form. It ends with its input.
"""

import json
import select
import subprocess
import sys
from typing import Any

import zenoh

from neighbour import PATIENCE_S, Start


def main(config: str, keys: str) -> None:
    session = zenoh.open(zenoh.Config.from_json5(config))
    heard: list[tuple[str, str]] = []

    def note(sample: zenoh.Sample) -> None:
        heard.append((str(sample.key_expr), sample.payload.to_bytes().hex()))

    listening = zenoh.handlers.Callback(note, indirect=False)
    subscriber = session.declare_subscriber(keys, listening, allowed_origin=zenoh.Locality.REMOTE)
    tokens = session.liveliness().declare_subscriber(keys, listening, history=True)
    for line in sys.stdin:
        for key, message in json.loads(line):
            session.put(  # pyright: ignore[reportUnknownMemberType]
                key, bytes.fromhex(message), congestion_control=zenoh.CongestionControl.BLOCK
            )
        sys.stdout.write(json.dumps(heard) + "\n")
        sys.stdout.flush()
    del subscriber, tokens
    session.close()  # pyright: ignore[reportUnknownMemberType]


class Stranger:
    """One stranger, as its test sees it."""

    def __init__(self, start: Start, config: dict[str, Any], keys: str = "**") -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "bufsize": 1}
        self._process = start(sys.executable, __file__, json.dumps(config), keys, **pipes)

    def put(self, *letters: tuple[str, bytes]) -> list[tuple[str, bytes]]:
        """Says what it has heard so far; presence tokens have no message."""
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answers is not None
        asked.write(json.dumps([(key, message.hex()) for key, message in letters]) + "\n")
        line = answers.readline() if select.select([answers], [], [], PATIENCE_S)[0] else ""
        assert line, f"the stranger does not answer; it ended with {self._process.poll()}"
        return [(key, bytes.fromhex(message)) for key, message in json.loads(line)]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
