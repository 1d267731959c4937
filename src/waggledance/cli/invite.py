"""`waggle invite`: a ticket to a swarm of one's own, which is founded when it is first wanted."""

import argparse
import json
import os
import re
import time
from pathlib import Path
from typing import Any

from waggledance.cli.verb import add_verb
from waggledance.config import read_config
from waggledance.errors import MissingError, UsageError
from waggledance.swarm.founding import Founding, alone, cut, found, keep, kept, reaching, rotated
from waggledance.swarm.ticket import WEB, Role, Ticket, write_ticket

DESCRIPTION = """A ticket: one string that holds all another machine needs to join. The first call founds
the swarm and keeps its keys in a file for your eyes only; a member's ticket is trusted with the swarm."""
EXAMPLE = """example:
  waggle invite                                          # for this machine and its LAN
  waggle invite lab --router tls/203.0.113.5:7447        # for everywhere, through a router
  waggle invite lab --for router                         # what `waggle router` on that machine takes
  waggle invite lab --for watcher --expires 30d
  waggle invite lab --rotate                             # new keys: no older ticket opens anything"""
_SPAN = re.compile(r"([0-9]{1,6})([mhd])")
_SECONDS = {"m": 60, "h": 3600, "d": 86_400}
OPEN_MEANS = """an open swarm: anyone may join, read and speak. Nothing is encrypted from its members and
nobody is known; answers are still signed by whoever wrote them, and every node scores them itself."""


def add_parser(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "invite",
        "a ticket with which other machines join your swarm",
        description=DESCRIPTION,
        example=EXAMPLE,
        run=run,
    )
    parser.add_argument("name", nargs="?", default="home", help="the swarm (home)")
    parser.add_argument(
        "--for", dest="role", choices=[role.value for role in Role], default=Role.MEMBER.value
    )
    parser.add_argument("--expires", metavar="SPAN", help="90m, 12h or 30d from now (default: never)")
    parser.add_argument(
        "--router",
        action="append",
        metavar="ENDPOINT",
        help="where nodes dial; again for more; replaces the old",
    )
    parser.add_argument("--authority", metavar="web|FILE", help="whose certificates the routers show")
    parser.add_argument("--this-machine", action="store_true", help="do not look for others on the LAN")
    parser.add_argument("--open", action="store_true", help="a swarm without a key, which anyone may join")
    parser.add_argument("--rotate", action="store_true", help="draw new keys first: older tickets end")
    parser.add_argument("--home", type=Path, help="folder of your swarms (default: as for `waggle up`)")


def run(options: argparse.Namespace) -> int:
    home = options.home or Path(read_config(environment=os.environ).home)
    expires = _expiry(options.expires)
    with alone(home, options.name):
        before = kept(home, options.name)
        founding = _founding(options, before)
        ticket = cut(founding, Role(options.role), expires)
        written = write_ticket(ticket)
        if founding != before:
            keep(founding, home)
    print(json.dumps(_facts(ticket, written)) if options.json else _words(ticket, written))
    return 0


def _founding(options: argparse.Namespace, before: Founding | None) -> Founding:
    if before is not None and options.open and not before.is_open:
        raise UsageError(f"the swarm {options.name} is private already; give the open one another name")
    founding = before or found(options.name, is_open=options.open)
    if options.rotate:
        founding = rotated(founding)
    return reaching(
        founding,
        lan=not options.this_machine,
        routers=founding.routers if options.router is None else tuple(options.router),
        authority=founding.authority if options.authority is None else _authority(options.authority),
    )


def _authority(word: str) -> str:
    if word in ("", WEB):
        return word
    try:
        certificate = Path(word).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise MissingError(
            f"--authority {word}: cannot read a PEM certificate there; name a file, or web"
        ) from error
    if "-----BEGIN CERTIFICATE-----" not in certificate:
        raise UsageError(f"--authority {word} holds no PEM certificate; name the authority's file, or web")
    return certificate


def _expiry(span: str | None) -> int:
    if span is None:
        return 0
    match = _SPAN.fullmatch(span)
    if match is None or int(match[1]) == 0:
        raise UsageError(f"--expires {span}: write minutes, hours or days from now, as in 90m, 12h or 30d")
    return int(time.time()) + int(match[1]) * _SECONDS[match[2]]


def _facts(ticket: Ticket, written: str) -> dict[str, object]:
    return {
        "ticket": written,
        "swarm": ticket.name,
        "id": ticket.swarm,
        "role": ticket.role.value,
        "open": ticket.is_open,
        "expires": ticket.expires or None,
        "lan": ticket.lan,
        "routers": list(ticket.routers),
    }


def _words(ticket: Ticket, written: str) -> str:
    verb = {Role.MEMBER: "up", Role.WATCHER: "status", Role.ROUTER: "router"}[ticket.role]
    lines = [written, "", f"use it with: waggle {verb} --ticket …"]
    if ticket.is_open:
        lines.append(f"this is {' '.join(OPEN_MEANS.split())}")
    elif ticket.role is Role.MEMBER:
        lines.append(f"whoever has it is a member of {ticket.name}: send it as you would send a password")
    return "\n".join(lines)
