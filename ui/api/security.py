"""Who may speak to the server: this machine, by its own name, from its own pages; with the token if one is set.

A page of another site, open in the same browser, can send requests to 127.0.0.1. It is known by its Origin;
one that gave its own name our address (DNS rebinding) is known by the Host it asks for. Our own command line and
studio say which registry they mean, so that they are never answered from another.
"""

from __future__ import annotations

import base64
import binascii
import secrets
import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ui.addresses import REGISTRY_HEADER, is_any, is_ip, is_loopback, registry_id, studio_address

if TYPE_CHECKING:
    from workbench.settings import Settings

MAX_BODY_BYTES = 2 << 20  # a prompt of half a million words; nobody's context is that long
TOO_LARGE = f"A request must be at most {MAX_BODY_BYTES:,} bytes, but is larger."


class Refusal(Exception):
    """A request that is not let in."""

    def __init__(self, status: int, message: str, code: str) -> None:
        super().__init__(message)
        self.status, self.message, self.code = status, message, code


class Guard:
    """Lets requests through that pass every check; sits around the whole application, playground included."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._host = settings.host
        self._token = settings.token.get_secret_value().encode()
        self._policy = _content_policy(settings)
        self._registry = registry_id(settings)
        self._foreign = f"Another workbench's server listens on port {settings.api_port}."

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        try:
            self._check(Headers(scope=scope))
            await self._app(scope, _limited(receive), self._marked(send))
        except Refusal as refusal:
            await _answer(refusal)(scope, receive, send)

    def _check(self, headers: Headers) -> None:
        host = headers.get("host", "")
        if not self._is_own_name(_name(f"//{host}")):
            raise Refusal(403, f"The Host must be this server's own name, but is “{host}” instead.", "foreign_host")
        origin = headers.get("origin")
        if origin is not None and _place(origin) != host:
            raise Refusal(403, f"The Origin must be this server itself, but is “{origin}” instead.", "foreign_origin")
        if self._token and not secrets.compare_digest(_token_in(headers), self._token):
            raise Refusal(
                401,
                "The request must carry this server's token (Authorization: Bearer …).",
                "invalid_api_key",
            )
        if headers.get(REGISTRY_HEADER, self._registry) != self._registry:
            raise Refusal(421, self._foreign, "foreign_registry")
        if _length(headers) > MAX_BODY_BYTES:
            raise Refusal(413, TOO_LARGE, "too_large")

    def _is_own_name(self, name: str) -> bool:
        if is_loopback(name) or name == self._host:
            return True
        # Listening everywhere: any address is ours, and an address cannot be rebound; of names only our own.
        return is_any(self._host) and (is_ip(name) or name == socket.gethostname())

    def _marked(self, send: Send) -> Send:
        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self._policy)
            await send(message)

        return marked


def _content_policy(settings: Settings) -> dict[str, str]:
    """Headers that keep the browser here: nothing from other servers, framed by our own studio only."""
    port = settings.studio_port
    frames = f"'self' {studio_address(settings)} http://localhost:{port}"
    return {
        "content-security-policy": (
            "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; "
            f"frame-ancestors {frames}; form-action 'self'; base-uri 'self'"
        ),
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }


def _limited(receive: Receive) -> Receive:
    """The same messages, until they carry more than is allowed."""
    num_bytes = 0

    async def limited() -> Message:
        nonlocal num_bytes
        message = await receive()
        num_bytes += len(message.get("body", b""))
        if num_bytes > MAX_BODY_BYTES:
            # This kind passes through FastAPI, which takes any other for a body that cannot be read.
            raise HTTPException(413, TOO_LARGE)
        return message

    return limited


def _length(headers: Headers) -> int:
    told = headers.get("content-length", "")
    return int(told) if told.isdecimal() else 0


def _token_in(headers: Headers) -> bytes:
    """The token of a request: as a bearer, or as the password that a browser asks for."""
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return value.strip().encode()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).partition(b":")[2]
        except binascii.Error:
            return b""
    return b""


def _name(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _place(url: str) -> str:
    """Host and port of a URL; empty where it cannot be read."""
    try:
        return urlsplit(url).netloc
    except ValueError:
        return ""


def _answer(refusal: Refusal) -> Any:
    body = {"message": refusal.message, "type": "invalid_request_error", "param": None, "code": refusal.code}
    headers = {"www-authenticate": 'Basic realm="Expert Workbench: any user, the token as password"'}
    return JSONResponse({"error": body}, refusal.status, headers if refusal.status == 401 else None)
