"""Access control of a server: only this machine, by its own name, from its own pages, with the token.

One guard stands before the API and before the studio. A page of another site, open in the same browser, can send
requests to 127.0.0.1. It is known by its Origin and by Sec-Fetch-Site, which also tells a page on another port of this
machine; one that gave its own name our address (DNS rebinding) is known by the Host it asks for. Our own command line
and studio say which registry they mean, so that they are never answered from another.

Programs send the token with each request, and a browser logs in once: its cookie holds for both servers. Only where
WORKBENCH_NO_AUTH is set no token is needed.
"""

from __future__ import annotations

import secrets
import socket
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.foreign_files import short
from ui.addresses import (
    HELP_PATH,
    REGISTRY_HEADER,
    STUDIO_HOST,
    TOKEN_WANTED,
    USER_HEADER,
    api_address,
    is_any,
    is_loopback,
    own_addresses,
    registry_id,
    studio_address,
)
from ui.server_proof import CHALLENGE_HEADER, HEALTH_PATHS, PROOF_HEADER
from ui.serving.attempts import Attempts, TooManyTriesError
from ui.serving.forwarded import as_forwarded, client_of
from ui.serving.login import LOGIN_PATH, LOGOUT_PATH, Login, token_in
from ui.serving.login_page import LoginPage
from workbench.access.actor import Actor, Role, acting_as, require
from workbench.access.home_token import ensure_token
from workbench.errors import ForbiddenError, RegistryUnavailableError

if TYPE_CHECKING:
    from workbench.settings import Settings

MAX_BODY_BYTES = 2 << 20  # a prompt of half a million words; nobody's context is that long
MAX_UPLOAD_MIB = 200  # of a file in the studio, which Streamlit holds in memory
_FORM_BYTES = 1 << 20  # of what a form has around an uploaded file
_NUM_BODIES = 32  # of the longest, which may be unfinished at once
_SAFE = ("GET", "HEAD", "OPTIONS")
ACTOR = "workbench.actor"  # in the scope of a request that was let in: who sent it
NONCE = "workbench.nonce"  # in the scope of every request: what marks the scripts of its page, where a policy names it
_JSON, _FORM, _FILES = "application/json", "application/x-www-form-urlencoded", "multipart/form-data"


class RefusedError(Exception):
    """A request that is not let in; `retry_after` says in how many seconds it may be, where it is known."""

    def __init__(self, status: int, message: str, code: str, retry_after: int = 0) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.retry_after = status, message, code, retry_after


@dataclass(frozen=True)
class Rules:
    """The access rules of one server.

    `frames` are the places (Sec-Fetch-Dest) in which a page of another address may show one of ours: the headers name
    which page may. Where `for_programs`, requests need no Origin and are asked for a password. `policies` are the
    content security policies by the start of the path, the longest start first, with a request's nonce for `{nonce}`;
    `uploads` are the starts of the paths that take files, of `max_upload_bytes` together with their form.
    """

    host: str
    port: int
    hosts: frozenset[str]
    headers: Mapping[str, str]
    policies: Mapping[str, str]
    uploads: tuple[str, ...] = ()
    max_upload_bytes: int = MAX_BODY_BYTES
    frames: tuple[str, ...] = ()
    for_programs: bool = False

    def policy(self, path: str) -> str:
        """What a page at this path may load."""
        return next(policy for start, policy in self.policies.items() if path.startswith(start))

    def max_bytes(self, path: str) -> int:
        """The longest body at this path."""
        return self.max_upload_bytes if path.startswith(self.uploads) else MAX_BODY_BYTES

    def content_type(self, path: str) -> str:
        """The type that a body at this path must have."""
        return _FORM if path in (LOGIN_PATH, LOGOUT_PATH) else _FILES if path.startswith(self.uploads) else _JSON


def api_rules(settings: Settings) -> Rules:
    """The API's: programs ask it, and the studio frames its playground."""
    port = settings.studio_port
    studio = " ".join(["'self'", studio_address(settings), f"http://localhost:{port}", *_named_origins(settings, port)])
    around = f"object-src 'none'; frame-ancestors {studio}; form-action 'self'; base-uri 'self'"
    policies = {
        # Gradio's page compiles templates and handlers of events, and writes styles into itself.
        "/play": "default-src 'self' data: blob:; script-src 'self' 'nonce-{nonce}' 'unsafe-eval'; "
        f"style-src 'self' 'unsafe-inline'; {around}",
        # The page of the schema starts by a script of its own.
        "/docs": "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
        f"img-src 'self' data:; {around}",
        "": f"default-src 'none'; {around}",
    }
    return Rules(
        settings.host,
        settings.api_port,
        settings.own_names,
        _HEADERS,
        policies,
        frames=("iframe",),
        for_programs=True,
    )


def studio_rules(settings: Settings) -> Rules:
    """The studio's: browsers of this machine, or of a named host, and no page around it but itself."""
    port = settings.api_port
    api = " ".join([api_address(settings), f"http://localhost:{port}", *_named_origins(settings, port)])
    around = "object-src 'none'; frame-ancestors 'self'; form-action 'self'; base-uri 'self'"
    policies = {
        # The pages of the help start by scripts of their own, and draw icons from their styles.
        HELP_PATH: f"default-src 'self' 'unsafe-inline'; img-src 'self' data:; {around}",
        # Streamlit's page writes styles into itself; Vega and Plotly compile expressions, partly in workers.
        "": "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; "
        f"frame-src 'self' blob: data: {api}; {around}",
    }
    return Rules(
        STUDIO_HOST,
        settings.studio_port,
        settings.own_names,
        {**_HEADERS, "x-frame-options": "SAMEORIGIN"},
        policies,
        uploads=("/_stcore/upload_file/",),
        max_upload_bytes=(MAX_UPLOAD_MIB << 20) + _FORM_BYTES,
    )


def _named_origins(settings: Settings, port: int) -> list[str]:
    """The places under named hosts where a server may be: behind TLS, or at its own port."""
    names = [f"[{name}]" if ":" in name else name for name in sorted(settings.host_names)]
    return [origin for name in names for origin in (f"https://{name}", f"http://{name}:{port}")]


# The referrer stays here as well; with `no-referrer` a browser would send our own forms with the Origin “null”.
_HEADERS = {"referrer-policy": "same-origin", "x-content-type-options": "nosniff"}
_LOGIN_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors{}; form-action 'self'; base-uri 'none'"


class Guard:
    """Lets requests and web sockets through that pass every check; sits around a whole application."""

    def __init__(self, app: ASGIApp, settings: Settings, rules: Rules) -> None:
        self._app = app
        self._rules = rules
        self._has_proxy = bool(settings.own_names)
        ensure_token(settings)
        self._login = Login(settings)
        self._attempts = Attempts(self._login.actor_of_token)
        self._login_page = LoginPage(self._login, self._attempts)
        self._registry = registry_id(settings)
        frames = rules.policy("").partition("frame-ancestors")[2].partition(";")[0]
        self._own_policy = _LOGIN_POLICY.format(frames)
        self._bodies = Bodies(_NUM_BODIES * MAX_BODY_BYTES + 2 * rules.max_upload_bytes)
        self._foreign = f"Another workbench's server listens on port {rules.port}."

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        scope = as_forwarded(scope, self._has_proxy)
        connection = HTTPConnection(scope)
        path = str(scope["path"])
        scope[NONCE] = secrets.token_urlsafe(16)
        try:
            self._check_sender(connection)
            send = await self._with_proof(connection, send)
            marked = self._with_policy(send, self._rules.policy(path).replace("{nonce}", scope[NONCE]))
            if self._login.is_needed and scope["type"] == "http" and path in (LOGIN_PATH, LOGOUT_PATH):
                self._check_body(connection)
                response = await self._login_page.answer(connection, receive)
            else:
                actor = await self._check_request(connection)
                if scope["type"] == "websocket":  # it outlives a role: each script of the studio looks it up again
                    await self._app(scope, receive, marked)
                    return
                scope[ACTOR] = actor
                with acting_as(actor), self._bodies.limit(receive, self._rules.max_bytes(path)) as limited:
                    await self._app(scope, limited, marked)
                return
        except RefusedError as refusal:
            response = self._answer_refusal(connection, refusal)
        await response(scope, receive, self._with_policy(send, self._own_policy))

    async def _with_proof(self, connection: HTTPConnection, send: Send) -> Send:
        """Adds the proof that a client of ours asks for before it sends its token."""
        challenge = connection.headers.get(CHALLENGE_HEADER, "")
        is_probe = bool(challenge) and connection.scope["path"] in HEALTH_PATHS
        if not is_probe or connection.headers.get(REGISTRY_HEADER) != self._registry:
            return send
        proof = await run_in_threadpool(self._login.prove, challenge, connection.scope.get("server"))
        return _with_headers(send, {PROOF_HEADER: proof})

    def _check_sender(self, connection: HTTPConnection) -> None:
        """Refuses what another site, or a page on another port of this machine, sent."""
        headers = connection.headers
        counts = Counter(headers.keys())
        if twice := next((name for name in _SINGLE if counts[name] > 1), ""):
            raise RefusedError(
                400, f"The request must carry one header “{twice}”, but has {counts[twice]}.", "bad_request"
            )
        host = headers.get("host", "")
        if not self._is_own_name(_split(f"//{host}").hostname or ""):
            raise RefusedError(403, _FOREIGN_HOST.format(short(host)), "foreign_host")
        origin = headers.get("origin")
        if origin is None and self._needs_origin(connection):
            raise RefusedError(403, "The request must carry this server's own Origin header.", "foreign_origin")
        if origin is not None and _split(origin).netloc != host:
            raise RefusedError(403, f"The Origin header must be this server; got “{short(origin)}”.", "foreign_origin")
        site = headers.get("sec-fetch-site", "none")
        if site not in ("none", "same-origin") and not self._is_visit(connection):
            raise RefusedError(
                403, f"A page of another address may only link here (Sec-Fetch-Site: {short(site)}).", "foreign_site"
            )

    def _needs_origin(self, connection: HTTPConnection) -> bool:
        """Browsers always name it on what may change something; programs need not where they may ask at all."""
        if connection.scope["type"] == "websocket":
            return True
        if connection.scope["method"] in _SAFE:
            return False
        return (
            not self._rules.for_programs
            or self._login.cookie in connection.cookies
            or connection.scope["path"] == LOGIN_PATH
        )

    def _is_visit(self, connection: HTTPConnection) -> bool:
        """Whether a browser goes to a page, as for a link that was followed."""
        headers = connection.headers
        is_page = headers.get("sec-fetch-mode") == "navigate" and connection.scope.get("method") in ("GET", "HEAD")
        return is_page and headers.get("sec-fetch-dest") in ("document", *self._rules.frames)

    async def _check_request(self, connection: HTTPConnection) -> Actor:
        """Who asks. Raises RefusedError for nobody, and for a body that may not be."""
        headers = connection.headers
        # Before the token: a client that learns that this is another workbench never sends it.
        if headers.get(REGISTRY_HEADER, self._registry) != self._registry:
            raise RefusedError(421, self._foreign, "foreign_registry")
        try:
            actor = await self._actor_of(connection)
        except TooManyTriesError as problem:
            message = f"Too many wrong tokens came from this address. Try again in {problem.seconds} seconds."
            raise RefusedError(429, message, "rate_limit_exceeded", problem.seconds) from None
        except RegistryUnavailableError as problem:
            raise RefusedError(503, problem.problem, "registry_unavailable") from None
        if actor is None:
            raise RefusedError(
                401, "The request must carry this server's token (Authorization: Bearer …).", TOKEN_WANTED
            )
        if connection.scope["type"] == "http":
            self._check_body(connection)
            if connection.scope["path"].startswith(self._rules.uploads):
                self._check_upload(actor)
        return actor

    async def _actor_of(self, connection: HTTPConnection) -> Actor | None:
        headers, cookies, actor = connection.headers, connection.cookies, None
        if self._login.is_needed and (token := token_in(headers)):
            session = cookies.get(self._login.cookie, "")
            # A browser sends an old password along with a new login, which counts.
            if not session or await run_in_threadpool(self._login.actor_of_session, session) is None:
                actor = await self._attempts.in_header(client_of(connection.scope), token)
        return await run_in_threadpool(self._login.actor_with, actor, headers, cookies)

    def _check_upload(self, actor: Actor) -> None:
        with acting_as(actor):
            try:
                require(Role.EDITOR)
            except ForbiddenError as problem:
                raise RefusedError(403, problem.problem, "forbidden") from None

    def _check_body(self, connection: HTTPConnection) -> None:
        """Refuses a body that is too long, or of another type than the path takes: a page may send simple ones."""
        headers, path = connection.headers, connection.scope["path"]
        most = self._rules.max_bytes(path)
        if _length(headers) > most:
            raise RefusedError(413, _too_large(most), "too_large")
        if connection.scope["method"] in _SAFE or not (_length(headers) or "transfer-encoding" in headers):
            return
        wanted = self._rules.content_type(path)
        if headers.get("content-type", "").partition(";")[0].strip().lower() != wanted:
            raise RefusedError(415, f"Send the body with “Content-Type: {wanted}”.", "unsupported_media_type")

    def _is_own_name(self, name: str) -> bool:
        host = self._rules.host
        if is_loopback(name) or name == host or name in self._rules.hosts:
            return True
        return is_any(host) and (name == socket.gethostname().lower() or name in own_addresses())

    def _with_policy(self, send: Send, policy: str) -> Send:
        return _with_headers(send, {**self._rules.headers, "content-security-policy": policy})

    def _answer_refusal(self, connection: HTTPConnection, refusal: RefusedError) -> Response:
        headers = {"retry-after": str(refusal.retry_after)} if refusal.retry_after else {}
        if refusal.status == 401:
            given = connection.headers
            is_get = connection.scope.get("method") == "GET" and "text/html" in given.get("accept", "")
            if is_get and given.get("sec-fetch-dest", "document") == "document":  # a person waits for a page
                return self._login_page.ask()
            headers = _BASIC_CHALLENGE if self._rules.for_programs else {}
        body = {"message": refusal.message, "type": "invalid_request_error", "param": None, "code": refusal.code}
        return JSONResponse({"error": body}, refusal.status, headers)


# The headers that are read here: of two values, what stands before or behind the guard might read the other one.
_SINGLE = (
    *("host", "origin", "authorization", "content-type", "content-length", "transfer-encoding"),
    *("sec-fetch-site", "sec-fetch-mode", "sec-fetch-dest", REGISTRY_HEADER, USER_HEADER, CHALLENGE_HEADER),
)
_FOREIGN_HOST = "The Host header must name this server, but is “{}”. If it is right, add it to WORKBENCH_HOSTS."
_BASIC_CHALLENGE = {"www-authenticate": 'Basic realm="Expert Workbench: any user, the token as password"'}


def _with_headers(send: Send, headers: Mapping[str, str]) -> Send:
    """Adds headers to what is answered, to a web socket that is refused as well."""

    async def sending(message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            MutableHeaders(scope=message).update(headers)
        await send(message)

    return sending


def _too_large(most: int) -> str:
    return f"A request must be at most {most:,} bytes, but is larger."


class Bodies:
    """The bodies that are being received, which together hold at most so many bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._num_free = max_bytes

    @contextmanager
    def limit(self, receive: Receive, most: int) -> Iterator[Receive]:
        """The same messages, until they carry more bytes than are allowed to one body, or to all."""
        num_bytes = num_held = 0

        async def receive_limited() -> Message:
            nonlocal num_bytes, num_held
            message = await receive()
            size = len(message.get("body", b""))
            num_bytes += size
            # This kind passes through FastAPI, which takes any other for a body that cannot be read.
            if num_bytes > most:
                raise HTTPException(413, _too_large(most))
            if size > self._num_free:
                raise HTTPException(503, "The server receives too many long requests at once. Try again in a moment.")
            num_held += size
            self._num_free -= size
            if not message.get("more_body", False):  # it is whole, and parsed next
                self._num_free += num_held
                num_held = 0
            return message

        try:
            yield receive_limited
        finally:
            self._num_free += num_held


def _length(headers: Headers) -> int:
    length = headers.get("content-length", "")
    return int(length) if length.isdecimal() else 0


def _split(url: str) -> SplitResult:
    """The parts of a URL; all are empty where it cannot be read."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")
