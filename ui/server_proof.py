"""Proof that a server knows a token, which is asked for before the token is sent to it.

Any program of the machine may listen on our port and answer as our servers do. So a client sends a nonce first, and the
server answers with an HMAC of it under a key made from the token. The HMAC is of the registry and also of the address
at which the connection ends: a program cannot pass the question on to the real server at another address. Nor can a
tunnel from another port, or the mapped port of a container.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
from collections.abc import Mapping
from contextlib import ExitStack
from functools import lru_cache, partial
from threading import Lock
from typing import TYPE_CHECKING, Any

import httpx

from ui.addresses import REGISTRY_HEADER, USER_HEADER, registry_id
from ui.errors import ServerRefusedError
from workbench.access import users
from workbench.access.actor import current_actor
from workbench.access.home_token import access_token
from workbench.errors import NoRegistryError
from workbench.registry.database import reading

if TYPE_CHECKING:
    from workbench.settings import Settings

CHALLENGE_HEADER, PROOF_HEADER = "x-workbench-challenge", "x-workbench-proof"
ELSEWHERE = "Stop it, or set WORKBENCH_API_PORT to another port and start with `workbench up`."
PASSED_ON = (
    "A tunnel must have the server's own address and port at both ends (`ssh -L 8000:127.0.0.1:8000`); "
    "where a container's port is mapped, run the command in the container."
)
HEALTH_PATHS = ("/healthz", "/_stcore/health")  # of the API and of the studio: where a proof is asked for
_PURPOSE = "expert-workbench server proof 1"
_CHALLENGE = re.compile("([0-9a-f]{64})(?: ([0-9a-f]{64}))?")
_MOST_TRIES = 3  # a server may end a connection at any time


class _NotConnectedError(Exception):
    """A request would need a connection of its own, on which nothing is proved yet."""


class ProvingTransport(httpx.BaseTransport):
    """Sends requests with the token, only over connections on which a server has proved that it knows the token.

    Raises ServerRefusedError where it does not. Without a token nothing is asked.
    """

    def __init__(self, settings: Settings, address: str, inner: httpx.BaseTransport | None = None) -> None:
        self._settings, self._address = settings, address
        self._inner = inner or httpx.HTTPTransport(trust_env=False)  # no proxy between two of our own processes
        self._lock = Lock()
        self._has_proof = False  # on a connection that a request may find; other transports than httpx's have but one

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        token = access_token(self._settings)
        if user_id := current_actor().user_id:
            request.headers[USER_HEADER] = user_id
        if not token:
            return self._inner.handle_request(request)
        request.headers["Authorization"] = f"Bearer {token}"
        with ExitStack() as held:
            held.enter_context(self._lock)  # until the request has a connection
            request.extensions = {**request.extensions, "trace": partial(_watch, held)}
            for _ in range(_MOST_TRIES):
                if not self._has_proof:
                    self._prove(token, request)
                try:
                    return self._inner.handle_request(request)
                except _NotConnectedError:
                    self._has_proof = False
        raise httpx.ConnectError("it ends each connection")

    def close(self) -> None:
        self._inner.close()

    def _prove(self, token: str, request: httpx.Request) -> None:
        """Makes a connection that other requests may use; it is closed again where nothing was proved on it."""
        challenge = new_challenge(token)
        headers = {REGISTRY_HEADER: registry_id(self._settings), CHALLENGE_HEADER: challenge}
        timeout = {"timeout": request.extensions.get("timeout", {})}
        probe = httpx.Request("GET", f"{self._address}{HEALTH_PATHS[0]}", headers=headers, extensions=timeout)
        response = self._inner.handle_request(probe)
        if is_proved(self._settings, token, challenge, response, self._address):
            response.read()
            self._has_proof = True
            return
        response.close()  # unread, so that its connection is not kept
        if response.status_code == httpx.codes.MISDIRECTED_REQUEST:
            port = httpx.URL(self._address).port
            raise ServerRefusedError(
                f"Another workbench's server listens on port {port}.", ELSEWHERE, status=421, code="foreign_registry"
            )
        raise ServerRefusedError(
            f"Another program listens at {self._address}, or a server that does not know this token, or one to which "
            "the port is passed on: the token was not sent.",
            f"{ELSEWHERE} A user's token may have been revoked. {PASSED_ON}",
            code="unproved_server",
        )


def _watch(held: ExitStack, event: str, _: Mapping[str, Any]) -> None:
    """What a connection of httpcore tells: a request may use one on which something is proved, and make none."""
    if event.startswith("connection.connect_") and event.endswith(".started"):
        raise _NotConnectedError
    if event.endswith("send_request_headers.started"):
        held.close()  # releases the lock


def new_challenge(token: str) -> str:
    """The value of the header that asks for a proof: a nonce, and of a user's token which key is meant."""
    nonce = secrets.token_hex(32)
    return f"{nonce} {_name_of(token)}" if _is_of_user(token) else nonce


def is_proved(settings: Settings, token: str, challenge: str, response: httpx.Response, address: str) -> bool:
    """Whether the answer to a challenge proves that the server at the end of the connection knows the token."""
    url, stream = httpx.URL(address), response.extensions.get("network_stream")
    end: tuple[str, int] = (stream.get_extra_info("server_addr") if stream else None) or (url.host, url.port or 80)
    expected = _proof(settings, token, challenge, end)
    return hmac.compare_digest(response.headers.get(PROOF_HEADER, "").encode(), expected.encode())


def prove(settings: Settings, token: str, challenge: str, end: tuple[str, int] | None) -> str:
    """The proof of a server that is reached at `end`; empty for a token that is nobody's, and without a token."""
    match = _CHALLENGE.fullmatch(challenge)
    if match is None or end is None:
        return ""
    if match[2] is None:
        return _proof(settings, token, challenge, end) if token and not _is_of_user(token) else ""
    if token and _is_of_user(token) and _name_of(token) == match[2]:
        return _proof(settings, token, challenge, end)
    key = _key_named(settings, match[2])
    return _hmac(settings, key.encode(), challenge, end) if key else ""


def _key_named(settings: Settings, name: str) -> str:
    try:
        with reading(settings) as session:
            return next((key for key in users.token_hashes(session) if _name(key) == name), "")
    except NoRegistryError:
        return ""


def _proof(settings: Settings, token: str, challenge: str, end: tuple[str, int]) -> str:
    key = users.token_hash(token).encode() if _is_of_user(token) else _slow_key(token)
    return _hmac(settings, key, challenge, end)


def _hmac(settings: Settings, key: bytes, challenge: str, end: tuple[str, int]) -> str:
    text = "\n".join([_PURPOSE, registry_id(settings), _place(*end[:2]), challenge])
    return hmac.new(key, text.encode(), "sha256").hexdigest()


@lru_cache(maxsize=8)
def _slow_key(token: str) -> bytes:
    """A key that is slow to compute: who asks for proofs must not be able to try many short tokens."""
    return hashlib.scrypt(token.encode(), salt=_PURPOSE.encode(), n=1 << 13, r=8, p=1, dklen=32)


def _is_of_user(token: str) -> bool:
    return token.startswith(users.TOKEN_START)


def _name_of(token: str) -> str:
    return _name(users.token_hash(token))


def _name(token_hash: str) -> str:
    """Says which key is meant, and nothing of it."""
    return hashlib.sha256(f"{_PURPOSE} name {token_hash}".encode()).hexdigest()


def _place(host: str, port: int) -> str:
    """The end of a connection, in one form for both sides."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return f"{host} {port}"
    return f"{getattr(address, 'ipv4_mapped', None) or address} {port}"
