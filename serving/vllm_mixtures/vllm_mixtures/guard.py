"""Requires the key of the server on every route: vLLM's own check leaves some that generate, such as `/invocations`."""

from __future__ import annotations

import hmac
import os
from collections.abc import Awaitable, Callable
from typing import Any

OPEN = ("/health",)
KEY = "VLLM_API_KEY"
Scope = dict[str, Any]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class RequireKey:
    """ASGI middleware, named by `--middleware vllm_mixtures.guard.RequireKey`; without a key in the environment it
    refuses everything."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app
        self._expected = f"Bearer {os.environ.get(KEY, '')}".encode()
        self._has_key = bool(os.environ.get(KEY))

    async def __call__(self, scope: Scope, receive: Callable[..., Awaitable[Any]], send: Send) -> None:
        if scope["type"] == "lifespan" or scope.get("path") in OPEN or self._is_allowed(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            headers = [(b"content-type", b"application/json")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": b'{"error": "Unauthorized"}'})

    def _is_allowed(self, scope: Scope) -> bool:
        given = dict(scope.get("headers", ())).get(b"authorization", b"")
        return self._has_key and hmac.compare_digest(given, self._expected)
