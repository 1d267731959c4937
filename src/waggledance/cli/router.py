"""`waggle router`: relays a swarm between machines, until it is stopped."""

import argparse
import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from waggledance.cli.verb import add_verb
from waggledance.errors import MissingError, UsageError
from waggledance.swarm.links import Own
from waggledance.swarm.router import EVERYWHERE, open_router
from waggledance.swarm.ticket import read_ticket

TICKET = "WAGGLE_SWARM_TICKET"
"""The same variable as a node's."""
DESCRIPTION = """Relays a swarm's messages between machines; of a private swarm it can read none. Nodes dial
it, so they need no open port. Several routers of one swarm link up; two or three make a backbone."""
EXAMPLE = """example:
  waggle invite lab --router tls/203.0.113.5:7447 --for router    # at home: prints the router's ticket
  waggle router --ticket waggle…                                  # on 203.0.113.5"""


def add_parser(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "router",
        "a relay, so that machines far apart can be one swarm",
        description=DESCRIPTION,
        example=EXAMPLE,
        run=run,
    )
    parser.add_argument(
        "--ticket", metavar="T", help=f"of `waggle invite --for router`; a member's does too (${TICKET})"
    )
    parser.add_argument(
        "--listen", action="append", metavar="ENDPOINT", help=f"again for more ({EVERYWHERE})"
    )
    parser.add_argument("--connect", action="append", metavar="ENDPOINT", help="other routers (the ticket's)")
    parser.add_argument("--certificate", type=Path, metavar="FILE", help="your own, as PEM; with --key")
    parser.add_argument("--key", type=Path, metavar="FILE", help="of the certificate, as PEM")


def run(options: argparse.Namespace) -> int:
    ticket = read_ticket(_ticket(options.ticket))
    if ticket.has_expired(time.time()):
        raise UsageError("this ticket has expired; ask for a new one")
    listen = tuple(options.listen or (EVERYWHERE,))
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: stop.set())
    relay = open_router(ticket, listen, options.connect, _own(options.certificate, options.key))
    try:
        if options.json:
            print(json.dumps({"swarm": ticket.name, "id": ticket.swarm, "listening": listen}), flush=True)
        else:
            print(f"router of {ticket.name}, listening at {', '.join(listen)}; Ctrl-C ends it", flush=True)
        stop.wait()
    finally:
        relay.close()
    return 0


def _ticket(flag: str | None) -> str:
    """The flag's or the environment's, where other users of the machine do not see it."""
    ticket = flag or os.environ.get(TICKET)
    if not ticket:
        raise UsageError(f"whose swarm? give --ticket, or set {TICKET}")
    return ticket


def _own(certificate: Path | None, key: Path | None) -> Own | None:
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise UsageError("--certificate and --key go together; give both or none")
    try:
        return Own(certificate.read_bytes(), key.read_bytes())
    except OSError as error:
        raise MissingError(f"cannot read {error.filename}: {error.strerror}") from error
