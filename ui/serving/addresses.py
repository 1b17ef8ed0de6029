"""Where the servers listen, who may reach them, and whether a port is free."""

from __future__ import annotations

import errno
import hashlib
import ipaddress
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ui.errors import PortTaken, UnsafeAddress

if TYPE_CHECKING:
    from workbench.settings import Settings


STUDIO_HOST = "127.0.0.1"
LEAST_TOKEN_LETTERS = 32  # of a token that other machines may try to guess


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
    """Refuses to listen beyond this machine without a token that is hard to guess."""
    token = settings.token.get_secret_value()
    if is_loopback(settings.host) or len(token) >= LEAST_TOKEN_LETTERS:
        return
    if not token:
        problem = f"WORKBENCH_HOST must be a loopback address while no token is set, but is “{settings.host}” instead."
    else:
        problem = (
            f"WORKBENCH_TOKEN needs at least {LEAST_TOKEN_LETTERS} characters where WORKBENCH_HOST is not a loopback "
            f"address, but has {len(token)}."
        )
    raise UnsafeAddress(problem, _MAKE_TOKEN)


_MAKE_TOKEN = (
    'Set WORKBENCH_TOKEN to what `python -c "import secrets; print(secrets.token_urlsafe(32))"` prints, '
    "or WORKBENCH_HOST to 127.0.0.1."
)


def require_free_port(port: int, variable: str, host: str = STUDIO_HOST) -> None:
    """Refuses a port on which another program listens; names the variable that moves us elsewhere."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As servers do: a port whose last connections still linger counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                remedy = f"Stop the program that uses it, or set {variable} to another port."
                raise PortTaken(f"Port {port} on {host} is in use.", remedy) from None
            problem = f"Port {port} on {host} cannot be used ({error.strerror or error})."
            raise PortTaken(problem, f"Set {variable} to another port.") from None


REGISTRY_HEADER = "x-workbench-registry"
TOKEN_WANTED = "invalid_api_key"  # the code of a refusal (401) for want of the token


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
    return _url(STUDIO_HOST, settings.studio_port)


def playground_address(settings: Settings, seen_from: str = STUDIO_HOST) -> str:
    """The URL of the playground, beside the API.

    `seen_from` is the name by which the browser knows the studio: a login holds for one name.
    """
    names = ("localhost", STUDIO_HOST)
    host = seen_from if seen_from in names and _reachable(settings.host) in names else settings.host
    return _url(host, settings.api_port) + "/play/"


def _reachable(host: str) -> str:
    """The address under which this machine reaches a server of its own."""
    if is_any(host):
        return "::1" if ":" in host else "127.0.0.1"
    return host


def _url(host: str, port: int) -> str:
    host = _reachable(host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
