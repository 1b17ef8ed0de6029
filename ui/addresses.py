"""Addresses of the servers: URLs, safe hosts, free ports."""

from __future__ import annotations

import errno
import hashlib
import ipaddress
import re
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ui.errors import PortTakenError, UnsafeAddressError

if TYPE_CHECKING:
    from workbench.settings import Settings


STUDIO_HOST = "127.0.0.1"
PLAYGROUND_PATH = "/play/"
HELP_PATH = "/help/"  # of the studio
LONGEST_QUERY = 6_000  # characters of an address: a browser sends it in two headers of each request
MOST_LINKED = 2_000  # characters of a text that goes from one page to another by its address
MIN_TOKEN_CHARACTERS = 32  # of a token that other machines may try to guess


def is_loopback(host: str) -> bool:
    """Whether an address can be reached only from this machine."""
    if host == "localhost":
        return True
    return is_ip(host) and ipaddress.ip_address(host).is_loopback


def is_ip(host: str) -> bool:
    """Whether a host is an IP address, not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_any(host: str) -> bool:
    """Whether a host means all interfaces of this machine."""
    return is_ip(host) and ipaddress.ip_address(host).is_unspecified


def own_addresses() -> set[str]:
    """The IP addresses of this machine's network interfaces, as they are now."""
    import psutil

    families = (socket.AF_INET, socket.AF_INET6)
    interfaces = psutil.net_if_addrs().values()
    return {one.address.partition("%")[0] for each in interfaces for one in each if one.family in families}


def require_safe_address(settings: Settings) -> None:
    """Raises UnsafeAddressError if other machines can reach a server, itself or by a proxy, without a long token."""
    token = settings.token.get_secret_value()
    exposed = {"WORKBENCH_HOST": [settings.host], "WORKBENCH_HOSTS": sorted(settings.host_names)}
    outside = [(variable, name) for variable, names in exposed.items() for name in names if not is_loopback(name)]
    if settings.public_url:  # whatever its name: a proxy listens on other addresses than the servers
        outside.append(("WORKBENCH_PUBLIC_URL", settings.public_url))
    if not outside or len(token) >= MIN_TOKEN_CHARACTERS:
        return
    variable, name = outside[0]
    if not token:
        problem = f"{variable} is “{name}”, which other machines may reach, but WORKBENCH_TOKEN is not set."
    else:
        problem = (
            f"WORKBENCH_TOKEN has {len(token)}, but needs at least {MIN_TOKEN_CHARACTERS} characters while "
            f"{variable} is “{name}”."
        )
    raise UnsafeAddressError(problem, _MAKE_TOKEN.format(variable))


_MAKE_TOKEN = (
    'Set WORKBENCH_TOKEN to what `python -c "import secrets; print(secrets.token_urlsafe(32))"` prints, '
    "or leave {} out."
)


def require_free_port(port: int, variable: str, host: str = STUDIO_HOST) -> None:
    """Raises PortTakenError if another program listens on a port; names the variable that changes the port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As servers do: a port with connections in TIME_WAIT counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                remedy = f"Stop the program that uses it, or set {variable} to another port."
                raise PortTakenError(f"Port {port} on {host} is in use.", remedy) from None
            problem = f"Port {port} on {host} cannot be used ({error.strerror or error})."
            raise PortTakenError(problem, f"Set {variable} to another port.") from None


REGISTRY_HEADER = "x-workbench-registry"
USER_HEADER = "x-workbench-user"  # the id of the user on whose behalf our own studio calls the API
TOKEN_WANTED = "invalid_api_key"  # the error code of a response 401 without a valid token


def registry_id(settings: Settings) -> str:
    """A hash that identifies a registry without revealing its URL; the same in every process of a workbench."""
    url = urlsplit(settings.database)
    address = f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}"  # without a name and password
    return hashlib.sha256(address.encode()).hexdigest()[:16]


def api_address(settings: Settings) -> str:
    """The URL of the API server for programs of this machine."""
    return _url(settings.host, settings.api_port)


def studio_address(settings: Settings) -> str:
    """The URL of the studio for programs of this machine, the only one that it listens on."""
    return _url(STUDIO_HOST, settings.studio_port)


def public_api_address(settings: Settings) -> str:
    """The URL of the API for users: the proxy's, if there is one."""
    return settings.public_url or api_address(settings)


def public_studio_address(settings: Settings) -> str:
    """The URL of the studio for users: the proxy's, if there is one."""
    return settings.public_url or studio_address(settings)


def playground_address(settings: Settings) -> str:
    """The URL of the playground for users, next to the API."""
    return public_api_address(settings) + PLAYGROUND_PATH


def playground_beside(settings: Settings, studio: str) -> str:
    """The URL of the playground for a browser that reached the studio at `studio`, a host name perhaps with a port.

    A login is valid for one host name, and the studio may be reached by the proxy and by loopback.
    """
    url = urlsplit(settings.public_url)
    if url.netloc and _host_and_port(f"{url.scheme}://{studio}") == _host_and_port(settings.public_url):
        return settings.public_url + PLAYGROUND_PATH
    name, names = urlsplit(f"//{studio}").hostname, ("localhost", STUDIO_HOST)
    host = name if name in names and _reachable(settings.host) in names else settings.host
    return _url(host, settings.api_port) + PLAYGROUND_PATH


def help_path(document: str) -> str:
    """The path, in the studio, of a document of docs/: `how_to/mode.md#parts` is at /help/how_to/mode.html#parts."""
    return HELP_PATH + document.replace("README.md", "index.html").replace(".md", ".html")


def help_path_for(problem: str) -> str:
    """The path of the document that a problem or its next step names (`docs/models.md`), else of troubleshooting."""
    named = _DOCUMENT.search(problem)
    return help_path(named[1] if named else "troubleshooting.md")


_DOCUMENT = re.compile(r"\bdocs/([\w/]+\.md)")


def _host_and_port(address: str) -> tuple[str | None, int]:
    """The host and the port of a URL, which the port may be left out of."""
    url = urlsplit(address)
    return url.hostname, url.port or (443 if url.scheme == "https" else 80)


def _reachable(host: str) -> str:
    """The address at which this machine reaches its own server."""
    if is_any(host):
        return "::1" if ":" in host else "127.0.0.1"
    return host


def _url(host: str, port: int) -> str:
    host = _reachable(host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
