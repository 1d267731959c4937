"""What all verbs have in common: a description, an example, `--json`."""

import argparse
from collections.abc import Callable
from typing import Any


def add_verb(
    verbs: Any,
    name: str,
    what: str,
    *,
    description: str,
    example: str,
    run: Callable[[argparse.Namespace], int],
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(
        name,
        help=what,
        description=description,
        epilog=example,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    parser.set_defaults(run=run, parser=parser)
    return parser


def add_group(verbs: Any, name: str, what: str, *, description: str, example: str, metavar: str) -> Any:
    """A verb that only has verbs of its own."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        name,
        help=what,
        description=description,
        epilog=example,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    return parser.add_subparsers(dest=name, required=True, metavar=metavar, parser_class=type(parser))


def flags_of(parser: argparse.ArgumentParser) -> list[str]:
    return [flag for action in parser._actions for flag in action.option_strings]
