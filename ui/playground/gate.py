"""What the playground serves of Gradio's server: the routes, parameters, fields and headers listed here, nothing else.

Gradio has some seventy routes; the page and Gradio's own client need a dozen. The others store, read and run what this
page has no use for: `deep_link`, for one, stores what a browser sent and shows it to whoever opens the link.
`tests/ui/playground/test_gate.py` walks Gradio's own table, so that a new version adds no route or parameter unnoticed.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Container
from dataclasses import dataclass
from urllib.parse import parse_qsl

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ui.serving.security import NONCE

log = logging.getLogger(__name__)

ENDPOINTS = ("models", "generate")  # for programs: see `blocks.add_endpoints`
_FILE = r"[\w@-][\w@.-]*(/[\w@-][\w@.-]*)*"
_ID = r"[\w-]{1,64}"
_NAMED = rf"/gradio_api/call/(v2/)?({'|'.join(ENDPOINTS)})"
_HEADERS = frozenset(
    b"accept accept-encoding accept-language authorization content-length content-type cookie host if-modified-since "
    b"if-none-match origin range referer transfer-encoding user-agent".split()
)


@dataclass(frozen=True)
class GradioRoute:
    """A served route. `parameters` are those that Gradio sees; any other one is refused.

    Where `has_address`, the query is that of the page: only what Gradio itself would read of it is refused.
    """

    methods: str
    path: str
    parameters: tuple[str, ...] = ()
    fields: tuple[str, ...] | None = ()  # of the JSON object that a POST carries; None: any
    has_address: bool = False


# The page sends its own query along with each event, and `opening.Opening` reads it there.
ROUTES = (
    GradioRoute("GET HEAD", "/?", has_address=True),
    GradioRoute("GET", "/config/?"),
    GradioRoute("GET HEAD", rf"/(assets|static)/{_FILE}"),
    GradioRoute("GET", "/theme.css", ("v",)),
    GradioRoute("GET", "/gradio_api/info/?", ("all_endpoints", "serialize")),
    GradioRoute("GET", "/gradio_api/startup-events"),
    GradioRoute("GET", f"/gradio_api/heartbeat/{_ID}"),
    GradioRoute(
        "POST",
        "/gradio_api/queue/join",
        fields=("data", "event_data", "fn_index", "trigger_id", "session_hash"),
        has_address=True,
    ),
    GradioRoute("GET", "/gradio_api/queue/data", ("session_hash",)),
    GradioRoute("POST", "/gradio_api/cancel", fields=("event_id", "session_hash", "fn_index")),
    GradioRoute("POST", "/gradio_api/reset", fields=("event_id",)),
    GradioRoute("POST", f"{_NAMED}/?", fields=None),
    GradioRoute("GET", f"{_NAMED}/{_ID}"),
)
OF_GRADIO = ("deep_link", "page")  # parameters that Gradio's own page reads


class EventGuard:
    """Sits directly around Gradio's routes. `events` are the numbers of the events that may be sent."""

    def __init__(self, app: ASGIApp, events: Container[int]) -> None:
        self._app, self._events = app, events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":  # Gradio has none
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            route = _route_of(scope)
            _check_query(route, scope)
            if scope["method"] == "POST":
                body = await Request(scope, receive).body()
                self._check_body(route, body)
                receive = _again(body, receive)
        except ClientDisconnect:
            return
        except HTTPException as refusal:
            await _answer(refusal)(scope, receive, send)
            return
        scope["headers"] = [header for header in scope["headers"] if header[0] in _HEADERS]
        if route is ROUTES[0]:
            scope["query_string"], send = b"", _with_nonce(scope, send)
        await self._run_gradio(scope, receive, send)

    def _check_body(self, route: GradioRoute, body: bytes) -> None:
        """Refuses what is not an object of the fields that Gradio's own clients send."""
        try:
            sent = json.loads(body)
        except (ValueError, RecursionError):
            sent = None
        if not isinstance(sent, dict):
            raise HTTPException(422, "The body is not a JSON object.")
        unknown = [name for name in sent if route.fields is not None and name not in route.fields]
        if unknown:
            raise HTTPException(422, f"The playground does not take the field “{unknown[0][:100]}”.")
        fields = route.fields or ()
        if "session_hash" in fields:
            _check_session(sent.get("session_hash"))
        event = sent.get("fn_index")
        if "fn_index" in fields and not (type(event) is int and event in self._events):
            raise HTTPException(404, "The playground has no event of this number (fn_index). Reload the page.")

    async def _run_gradio(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs Gradio. What it gives up on is a request that it cannot read: events run elsewhere."""
        is_started = False

        async def send_and_note(message: Message) -> None:
            nonlocal is_started
            is_started = True
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        except Exception as error:
            log.warning("Gradio gave up on %s %s (%s).", scope["method"], ascii(scope["path"]), type(error).__name__)
            if not is_started:
                await _answer(HTTPException(400, _UNREADABLE))(scope, receive, send)
            else:
                await send({"type": "http.response.body", "body": b""})


_UNREADABLE = "The playground cannot read this request. Reload the page, or see the values that `/info` lists."


def _route_of(scope: Scope) -> GradioRoute:
    path = str(scope["path"]).removeprefix(str(scope.get("root_path", "")))
    for route in ROUTES:
        if re.fullmatch(route.path, path, re.ASCII):
            if scope["method"] in route.methods.split():
                return route
            raise HTTPException(405, f"The playground takes {route.methods} here.", {"allow": route.methods})
    raise HTTPException(404, "The playground has no such page.")


def _check_query(route: GradioRoute, scope: Scope) -> None:
    """Refuses parameters that the route does not list."""
    try:
        pairs = parse_qsl(scope["query_string"].decode("ascii"), keep_blank_values=True, max_num_fields=1000)
    except ValueError:
        raise HTTPException(400, "The query is not readable.") from None
    for name, value in pairs:
        if name in OF_GRADIO if route.has_address else name not in route.parameters:
            raise HTTPException(400, f"The playground does not take the parameter “{name[:100]}” here.")
        if name == "session_hash" and not route.has_address:
            _check_session(value)
    if "session_hash" in route.parameters and [name for name, _ in pairs].count("session_hash") != 1:
        raise HTTPException(400, "One session_hash is needed.")


def _check_session(value: object) -> None:
    if not (isinstance(value, str) and re.fullmatch(_ID, value, re.ASCII)):
        raise HTTPException(400, "The session_hash is not 1 to 64 letters, digits, “-” or “_”.")


def _again(body: bytes, receive: Receive) -> Receive:
    """The same body again, then what follows."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return messages.pop() if messages else await receive()

    return again


def _answer(refusal: HTTPException) -> JSONResponse:
    error = {"message": refusal.detail, "type": "invalid_request_error", "param": None, "code": "bad_request"}
    return JSONResponse({"error": error}, refusal.status_code, refusal.headers)


def _with_nonce(scope: Scope, send: Send) -> Send:
    """Marks the scripts in Gradio's page with the number that its policy names: no other one in it runs."""
    mark = f'<script nonce="{scope.get(NONCE, "")}"'.encode()
    start: Message = {}
    page = bytearray()

    async def send_with_nonce(message: Message) -> None:
        nonlocal start
        if message["type"] == "http.response.start":
            start = message
            return
        if message["type"] != "http.response.body":
            await send(message)
            return
        page.extend(message.get("body", b""))
        if message.get("more_body"):
            return
        body = re.sub(rb"<script(?=>| data-gradio-mode>)", lambda _: mark, bytes(page))
        MutableHeaders(scope=start)["content-length"] = str(len(body))
        await send(start)
        await send({"type": "http.response.body", "body": body})

    return send_with_nonce
