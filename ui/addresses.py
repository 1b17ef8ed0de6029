"""Where the servers listen, who may reach them, and whether a port is free."""

from __future__ import annotations

import hashlib
import ipaddress
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ui.errors import PortTaken, UnsafeAddress

if TYPE_CHECKING:
    from workbench.settings import Settings


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    return is_ip(host) and ipaddress.ip_address(host).is_loopback


def is_ip(host: str) -> bool:
    """Whether a host is written as an address, not as a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_any(host: str) -> bool:
    """Whether a host stands for every interface of this machine."""
    return is_ip(host) and ipaddress.ip_address(host).is_unspecified


def require_safe_address(settings: Settings) -> None:
    """Refuses to listen beyond this machine without a token."""
    if is_loopback(settings.host) or settings.token.get_secret_value():
        return
    raise UnsafeAddress(
        f"WORKBENCH_HOST must be a loopback address while no token is set, but is “{settings.host}” instead.",
        "Set WORKBENCH_TOKEN to a long secret, or WORKBENCH_HOST to 127.0.0.1.",
    )


def require_free_port(port: int, variable: str, host: str = "127.0.0.1") -> None:
    """Refuses a port on which another program listens; names the variable that moves us elsewhere."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As servers do: a port whose last connections still linger counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise PortTaken(
                f"Port {port} on {host} must be free, but cannot be had ({error.strerror or error}).",
                f"Stop the program that uses it, or set {variable} to another port.",
            ) from None


REGISTRY_HEADER = "x-workbench-registry"


def registry_id(settings: Settings) -> str:
    """Tells one registry from another without naming it: the same for every process of a workbench."""
    url = urlsplit(settings.database)
    place = f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}"  # without a name and password
    return hashlib.sha256(place.encode()).hexdigest()[:16]


def api_address(settings: Settings) -> str:
    """The URL under which this machine reaches its own API server."""
    return _url(settings.host, settings.api_port)


def studio_address(settings: Settings) -> str:
    """The URL of the studio, which never listens beyond this machine."""
    return _url("127.0.0.1", settings.studio_port)


def playground_address(settings: Settings) -> str:
    """The URL of the playground, beside the API."""
    return api_address(settings) + "/play/"


def _url(host: str, port: int) -> str:
    if is_any(host):
        host = "::1" if ":" in host else "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
