"""Who may look at the page, and what its answers forbid a browser to do.

A request's headers in, a refusal or nothing out. On this machine alone the Host header decides, so that no
other site's name can be made to point here; from elsewhere a token is asked for too.
"""

import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

COOKIE = "waggle"
SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
        "trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True)
class Guard:
    names: frozenset[str]
    """What this machine is called, in a Host header without its port."""
    token: str | None
    """None: whoever reaches it may look, which is this machine's users alone."""

    def refuses(
        self, headers: Mapping[str, str], cookies: Mapping[str, str], query: Mapping[str, str]
    ) -> HTTPStatus | None:
        if not self._knows(headers.get("host", "")):
            return HTTPStatus.MISDIRECTED_REQUEST
        if self.token is None:
            return None
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        shown = (bearer, cookies.get(COOKIE, ""), query.get("token", ""))
        known = any(hmac.compare_digest(one.encode(), self.token.encode()) for one in shown)
        return None if known else HTTPStatus.FORBIDDEN

    def may_write(self, headers: Mapping[str, str]) -> bool:
        """Another site's page may send a form here, but neither this Origin nor this kind of content."""
        origin = headers.get("origin")
        own = origin is None or origin.partition("://")[2] == headers.get("host")
        return own and headers.get("content-type", "").partition(";")[0] == "application/json"

    def _knows(self, host: str) -> bool:
        name = host.rpartition("]")[0].removeprefix("[") or host.partition(":")[0]
        if name.lower() in self.names:
            return True
        # Where it listens to the world, any address is its own; a name that is not known may be anybody's.
        return self.token is not None and _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
