"""Links: how a session of a swarm reaches the others, as Zenoh's configuration. Pure: it opens nothing.

Nodes of one machine or LAN are peers that link up each with each; with routers in the ticket a node is a
client of one of them and moves to the next when it is gone. Routers link up with each other. Between
machines links are encrypted, and only holders of the swarm's ticket may open one: the certificates follow
from its links' key, so none has to be handed around.
"""

import base64
import datetime
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from waggledance.swarm.endpoint import AUTOMATIC, LOOPBACK, LOOPBACK_INTERFACE, address_on
from waggledance.swarm.ticket import WEB, Ticket
from waggledance.swarm.wire import MESSAGE_LIMIT_BYTES

OPEN_TIMEOUT_MS = 3_000
FIRST_PEER_WAIT_MS = 500
"""Opening returns with the first peer, or alone after so long; looking for others goes on behind it."""
REDIAL_MS = (250, 4_000)
"""How soon an endpoint that does not answer is dialled again, first and at most."""
LEASE_MS = 10_000
"""A link that has been silent for so long is dead."""
STUCK_PEER_WAIT_US = 100_000
"""How long the courier waits for a peer that stopped reading. Then that peer misses messages, at no further
cost to anyone, until it reads again."""
ZENOH_MESSAGE_LIMIT_BYTES = 4 * MESSAGE_LIMIT_BYTES
"""Zenoh drops larger ones before they are whole in memory. Above our own limit, so that ours is the one that
counts a refusal."""
ONE_DIALS = {"to_router": "always", "to_peer": "greater-zid"}
MULTICAST_PORT = 7446
ROUTER_PORT = 7447
CERTIFICATE_YEARS = range(2020, 2120)
"""Long: what ends a certificate is a rotation of the swarm's keys, and clocks may be wrong."""


@dataclass(frozen=True, slots=True)
class Own:
    """A certificate and key of the user's own for a router, as PEM."""

    certificate: bytes
    key: bytes


def node_config(
    ticket: Ticket, connect: Sequence[str], listen: Sequence[str], interface: str | None
) -> dict[str, Any]:
    """A client where there are routers to dial, else a peer among peers."""
    if ticket.routers and not connect and not listen:
        return _config("client", ticket.routers, (), ticket) | {"scouting": _scouting(None, LOOPBACK)}
    address = address_on(interface or (AUTOMATIC if ticket.lan else LOOPBACK_INTERFACE))
    protocol = "tcp" if address == LOOPBACK else "tls"
    listening = list(listen) or [f"{protocol}/{address}:0"]
    # Whoever is told whom to dial looks for nobody else.
    meeting = None if connect else _meeting_point(ticket.swarm)
    return _config("peer", connect, listening, ticket) | {"scouting": _scouting(meeting, address)}


def router_config(
    ticket: Ticket, connect: Sequence[str], listen: Sequence[str], own: Own | None = None
) -> dict[str, Any]:
    return _config("router", connect, listen, ticket, own) | {"scouting": _scouting(None, LOOPBACK)}


def next_router_first(config: Mapping[str, Any]) -> dict[str, Any]:
    """For another try: Zenoh spends all its time on the first of them where that one's machine is silent."""
    dialled = config["connect"]["endpoints"]
    return {**config, "connect": {**config["connect"], "endpoints": [*dialled[1:], *dialled[:1]]}}


def _config(
    mode: str, connect: Sequence[str], listen: Sequence[str], ticket: Ticket, own: Own | None = None
) -> dict[str, Any]:
    first_ms, most_ms = REDIAL_MS
    return {
        "mode": mode,
        "connect": {
            "endpoints": list(connect),
            # A client that reaches no router says so at once and is opened again; the others dial on.
            "timeout_ms": OPEN_TIMEOUT_MS if mode == "client" else -1,
            "exit_on_failure": mode == "client",
            "retry": {"period_init_ms": first_ms, "period_max_ms": most_ms, "period_increase_factor": 2},
        },
        "listen": {"endpoints": list(listen), "timeout_ms": 0, "exit_on_failure": True},
        "adminspace": {"enabled": False},
        "transport": {
            "shared_memory": {"enabled": False},
            "unicast": {"open_timeout": OPEN_TIMEOUT_MS, "accept_timeout": OPEN_TIMEOUT_MS},
            "link": {
                "protocols": _protocols([*connect, *listen]),
                "tls": _tls(ticket, own),
                "rx": {"max_message_size": ZENOH_MESSAGE_LIMIT_BYTES},
                "tx": {
                    "lease": LEASE_MS,
                    "queue": {
                        "congestion_control": {
                            "drop": {
                                "wait_before_drop": STUCK_PEER_WAIT_US,
                                "max_wait_before_drop_fragments": STUCK_PEER_WAIT_US,
                            }
                        }
                    },
                },
            },
        },
    }


def _protocols(endpoints: Sequence[str]) -> list[str]:
    """None but those that the node uses itself: else anybody on a LAN could offer a link without encryption,
    and would be dialled there."""
    return sorted({endpoint.partition("/")[0] for endpoint in endpoints})


def _scouting(meeting_point: str | None, interface: str) -> dict[str, Any]:
    return {
        "delay": FIRST_PEER_WAIT_MS,
        "multicast": {
            "enabled": meeting_point is not None,
            "address": meeting_point or f"239.255.0.0:{MULTICAST_PORT}",
            "interface": interface,
        },
        # Where two dial each other at once, what one of them told may be lost with the link that is dropped.
        "gossip": {"enabled": True, "autoconnect_strategy": {"peer": ONE_DIALS}},
    }


def _meeting_point(swarm: str) -> str:
    """The multicast group where a swarm's nodes find each other; other swarms, and whatever else speaks Zenoh
    here, meet elsewhere."""
    high, low = hashlib.blake2b(swarm.encode(), digest_size=2).digest()
    return f"239.255.{high}.{low}:{MULTICAST_PORT}"


def _tls(ticket: Ticket, own: Own | None) -> dict[str, Any]:
    """Both ends show a certificate of the swarm's authority; with a user's own only routers show one."""
    authority_key = Ed25519PrivateKey.from_private_bytes(
        hashlib.blake2b(digest_size=32, key=ticket.links_key, person=b"waggle authority").digest()
    )
    authority = _certificate(authority_key, authority_key, is_authority=True)
    leaf_key = Ed25519PrivateKey.from_private_bytes(os.urandom(32))
    key = leaf_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    certificate = _certificate(leaf_key, authority_key, is_authority=False)
    settings: dict[str, Any] = {"enable_mtls": not ticket.authority, "close_link_on_expiration": False}
    # Names are not checked under the swarm's own authority: it vouches for nobody else.
    settings["verify_name_on_connect"] = bool(ticket.authority)
    if ticket.authority != WEB:
        root = ticket.authority.encode() if ticket.authority else authority
        settings["root_ca_certificate_base64"] = _base64(root)
    settings["listen_private_key_base64"] = _base64(own.key if own else key)
    settings["listen_certificate_base64"] = _base64(own.certificate if own else certificate)
    if not ticket.authority:
        settings["connect_private_key_base64"] = _base64(key)
        settings["connect_certificate_base64"] = _base64(certificate)
    return settings


def _certificate(key: Ed25519PrivateKey, signer: Ed25519PrivateKey, *, is_authority: bool) -> bytes:
    """The authority's comes out the same wherever it is made: Ed25519 signs without chance."""
    swarm = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "waggle swarm")])
    node = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "waggle node")])
    builder = (
        x509.CertificateBuilder()
        .subject_name(swarm if is_authority else node)
        .issuer_name(swarm)
        .public_key(key.public_key())
        .serial_number(1 if is_authority else x509.random_serial_number())
        .not_valid_before(datetime.datetime(CERTIFICATE_YEARS.start, 1, 1))
        .not_valid_after(datetime.datetime(CERTIFICATE_YEARS.stop, 1, 1))
    )
    if is_authority:
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    else:
        uses = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        names = x509.SubjectAlternativeName([x509.DNSName("waggle")])
        builder = builder.add_extension(uses, critical=False).add_extension(names, critical=False)
    return builder.sign(signer, None).public_bytes(Encoding.PEM)


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
