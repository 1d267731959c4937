"""Endpoints: where to listen and where to dial, `tls/192.0.2.7:7447`; checked before the network sees them.

Also which address of this machine others can reach: one interface, never several, because peers that
advertise addresses nobody reaches make everyone wait.
"""

import re
import socket
from pathlib import Path

from waggledance.errors import UsageError

LOOPBACK = "127.0.0.1"
LOOPBACK_INTERFACE, AUTOMATIC = "lo", "auto"
ANY_LOOPBACK_PORT = f"tcp/{LOOPBACK}:0"
PROTOCOLS = ("tls", "tcp", "quic")
_ENDPOINT = re.compile(
    r"(?P<protocol>[a-z]+)/(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})"
)
_PRIVATE = ("10.", "192.168.", "169.254.", *(f"172.{second}." for second in range(16, 32)))


def check_endpoint(endpoint: str) -> None:
    match = _ENDPOINT.fullmatch(endpoint)
    if match is None or int(match["port"]) > 65535:
        raise UsageError(
            f"{endpoint!r} is no endpoint: they look like tls/192.0.2.7:7447; port 0 takes any free one"
        )
    if match["protocol"] not in PROTOCOLS:
        raise UsageError(
            f"{endpoint}: no links over {match['protocol']!r}; take one of {', '.join(PROTOCOLS)}"
        )


def is_loopback(endpoint: str) -> bool:
    host = endpoint.partition("/")[2].rpartition(":")[0]
    return host.startswith("127.") or host in ("localhost", "[::1]")


def free_loopback_endpoint() -> str:
    """An endpoint to listen on that others can be told beforehand.

    The port is free now and, as the system hands ports out in turn, most likely when it is used.
    """
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return f"tcp/{LOOPBACK}:{probe.getsockname()[1]}"


def address_on(interface: str) -> str:
    """The address that others reach this machine at: on the interface named, or found (`auto`).

    Found means the way out of this machine, if the address there is a private network's; where there is no
    way out, as between two laptops and a switch, the first card with such an address. A machine that has a
    public one listens to itself alone until it is told otherwise.
    """
    if interface == LOOPBACK_INTERFACE:
        return LOOPBACK
    if interface == AUTOMATIC:
        address = _address_out() or _first_private_address()
        return address if address is not None and address.startswith(_PRIVATE) else LOOPBACK
    if re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,3}){3}", interface):
        return interface
    address = _address_of(interface)
    if address is None:
        known = ", ".join(sorted(path.name for path in Path("/sys/class/net").glob("*"))) or "see ifconfig"
        raise UsageError(
            f"swarm.interface = {interface!r}: no such interface with an address here; known: {known}"
        )
    return address


def _address_out() -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: a datagram socket only asks for the route
        except OSError:
            return None
        return str(probe.getsockname()[0])


def _first_private_address() -> str | None:
    addresses = (_address_of(name) for _, name in sorted(socket.if_nameindex()))
    return next((address for address in addresses if address and address.startswith(_PRIVATE)), None)


def _address_of(interface: str) -> str | None:
    try:
        import fcntl
    except ImportError:  # no such call on this system: name the address instead
        return None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            request = interface.encode().ljust(40, b"\0")[:40]
            return socket.inet_ntoa(fcntl.ioctl(probe.fileno(), 0x8915, request)[20:24])  # SIOCGIFADDR
        except OSError:
            return None
