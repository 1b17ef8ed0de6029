"""What a proxy says of a request: the address of the client, and whether it came by TLS.

Only a proxy of this machine is believed, and only where the settings name one: anybody else can write these headers.
What stands behind the guard never sees them; Gradio would write some of them into its page.
"""

from __future__ import annotations

import ipaddress

from starlette.types import Scope

_SCHEMES = {b"http": "http", b"https": "https", b"ws": "http", b"wss": "https"}
_PREFIXES = (b"x-forwarded", b"forwarded", b"x-real-ip", b"x-original", b"x-rewrite", b"x-gradio")


def as_forwarded(scope: Scope, has_proxy: bool) -> Scope:
    """The scope with client and scheme as a trusted proxy names them, and without the headers that name them.

    It is the same object: what stands before the guard reads in it which route the request took.
    """
    headers = [one for one in scope["headers"] if not one[0].startswith(_PREFIXES)]
    if len(headers) == len(scope["headers"]):
        return scope
    given = dict(scope["headers"])  # of several, the last: the proxy's own
    scope["headers"] = headers
    peer = _address(_peer(scope))
    if not has_proxy or peer is None or not peer.is_loopback:
        return scope
    scheme = _SCHEMES.get(given.get(b"x-forwarded-proto", b"").strip().lower())
    if scheme is not None:
        is_socket = scope["type"] == "websocket"
        scope["scheme"] = scheme.replace("http", "ws") if is_socket else scheme
    # Each proxy adds the address that it saw at the end; what stands before it is what a client wrote.
    client = given.get(b"x-forwarded-for", b"").rpartition(b",")[2].strip().decode("latin-1")
    if _address(client) is not None:
        scope["client"] = (client, 0)
    return scope


def client_of(scope: Scope) -> str:
    """The client whose attempts are counted together: its address, or the network of an IPv6 host."""
    peer = _peer(scope)
    address = _address(peer)
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped
        return str(mapped or ipaddress.ip_network((int(address), 64), strict=False).network_address)
    return peer


def _peer(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return None
