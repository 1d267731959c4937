"""A router: relays a swarm's messages between machines, and can read none of a private swarm's.

Nodes dial it and need no open port themselves. Several routers link up into one backbone; a node whose
router is gone moves to the next in its ticket.
"""

import socket
from collections.abc import Sequence

from waggledance.errors import UsageError
from waggledance.swarm.endpoint import check_endpoint
from waggledance.swarm.links import ROUTER_PORT, Own, router_config
from waggledance.swarm.ticket import Ticket
from waggledance.swarm.zenoh import Relay, open_relay

EVERYWHERE = f"tls/0.0.0.0:{ROUTER_PORT}"


def open_router(
    ticket: Ticket, listen: Sequence[str], connect: Sequence[str] | None = None, own: Own | None = None
) -> Relay:
    """Listens, and links up with the other routers: those of the ticket where `connect` names none."""
    if ticket.authority and own is None:
        raise UsageError(
            "this swarm's routers show certificates of another authority; give --certificate and --key"
        )
    others = (
        [endpoint for endpoint in ticket.routers if not _is_here(endpoint, listen)]
        if connect is None
        else connect
    )
    for endpoint in (*listen, *others):
        check_endpoint(endpoint)
    return open_relay(router_config(ticket, others, listen, own))


def _is_here(endpoint: str, listen: Sequence[str]) -> bool:
    """Whether an endpoint is this very router: its port, at an address of this machine."""
    host, _, port = endpoint.partition("/")[2].rpartition(":")
    if port not in {own.rpartition(":")[2] for own in listen}:
        return False
    try:
        address = socket.gethostbyname(host.strip("[]"))
        with socket.socket() as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True
