"""The command line: parses, hands over to one file per verb, and turns errors into one line and a code."""

import argparse
import importlib
import os
import re
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

from waggledance import __version__
from waggledance.cli.verb import flags_of
from waggledance.errors import BUG_EXIT_CODE, INTERRUPTED_EXIT_CODE, UsageError, WaggleError, nearest
from waggledance.swarm.ticket import PREFIX
from waggledance.view.text import plain

VERBS = {
    "demo": "demo",
    "up": "up",
    "invite": "invite",
    "router": "router",
    "status": "status",
    "watch": "watch",
    "report": "report",
    "eval": "evaluation",
    "compare": "compare",
    "export": "export",
    "lab": "lab",
    "audit": "audit",
    "bench": "bench",
}
"""Each with its file: only the one that is called is imported, for some take most of a second."""
EXIT_CODES = """exit codes:
  0 done   2 wrong flag, key or value   3 something named is missing   4 unusable model
  5 unusable task source   6 swarm not joined   7 disk full or not writable   8 a node process died
  70 a bug of ours   130 interrupted"""


MESSAGE_LIMIT = 4000
"""Characters: an error is one line, whatever names and values it repeats."""
_TICKET = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{64,}}")
"""A secret, which an error must not repeat: it may go into a log."""


class Parser(argparse.ArgumentParser):
    """Argparse, but errors are ours: one line, with the nearest known flag."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")


def parser(words: Sequence[str]) -> Parser:
    """With the verb that the words name; with all of them where they name none that is known."""
    top = Parser(
        prog="waggle",
        description="Post-train language models together: learn at home, share what was tried, as text.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"waggle {__version__}")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=Parser)
    named = next((word for word in words if not word.startswith("-")), "")
    for file in [VERBS[named]] if named in VERBS else VERBS.values():
        importlib.import_module(f"waggledance.cli.{file}").add_parser(verbs)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    try:
        return _run(words)
    except WaggleError as error:
        line = _TICKET.sub(f"{PREFIX}…", " ".join(str(error).splitlines()))
        print(f"waggle: {plain(line, MESSAGE_LIMIT)}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("waggle: interrupted", file=sys.stderr)
        return INTERRUPTED_EXIT_CODE
    except BrokenPipeError:
        # Whoever read our output has gone; there is nobody left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except Exception:  # noqa: BLE001 - the command line's top: a bug is shown whole, with a code of its own
        traceback.print_exc()
        print("waggle: this is a bug of ours; please report the lines above", file=sys.stderr)
        return BUG_EXIT_CODE


def _run(words: Sequence[str]) -> int:
    for word in words:
        if not _is_text(word):
            raise UsageError(f"argument {word!r} is not UTF-8; give it another name")
    options, unknown = parser(words).parse_known_args(words)
    if unknown:
        flags = flags_of(options.parser)
        raise UsageError(f"unknown argument {unknown[0]}; {nearest(unknown[0].split('=')[0], flags)}")
    code = int(options.run(options))
    sys.stdout.flush()  # here a closed pipe can still be taken well
    return code


def _is_text(word: str) -> bool:
    """Whether it can be written to a journal: file names may be any bytes."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
