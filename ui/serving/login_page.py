"""The pages of login and logout, plain HTML: a form for the token, a redirect once the browser has its cookie, and a
button that ends its login.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from string import Template
from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import Receive

from ui.serving.attempts import SLOW_SECONDS, Attempts, TooManyTriesError
from ui.serving.forwarded import client_of
from ui.serving.login import LOGIN_PATH, LOGOUT_PATH, SESSION_SECONDS, Login
from workbench.access.actor import OWNER

_PAGE = Template(Path(__file__).with_name("login.html").read_text(encoding="utf-8"))
_FORM = Template(f"""$note
<p>This workbench requires a login. Open the link that <code>workbench up</code> printed, or print a new one with
<code>workbench login-link</code>. A link works once.</p>
<form method="post" action="{LOGIN_PATH}">
<label>Or enter the token, which <code>workbench token</code> prints
<input type="password" name="token" autocomplete="current-password" required autofocus></label>
<button>Log in</button>
</form>""")

_LOGOUT_FORM = f"""<p>This ends your login to the studio and the playground in this browser.</p>
<form method="post" action="{LOGOUT_PATH}"><button>Log out</button></form>"""
_REDIRECT = '\n<meta http-equiv="refresh" content="0; url=/">'
_MAX_FORM_BYTES, _MAX_FIELDS = 4096, 8
_NO_STORE = {"cache-control": "no-store"}


class LoginPage:
    """Answers requests for the login page (a visit, a link, a submitted token) and for the logout page."""

    def __init__(self, login: Login, attempts: Attempts) -> None:
        self._login, self._attempts = login, attempts

    async def answer(self, request: HTTPConnection, receive: Receive) -> Response:
        """The form, or a response that logs the browser in or out."""
        if request.scope["path"] == LOGOUT_PATH:
            return await self._log_out(request)
        if request.scope["method"] == "POST":
            return await self._by_token(request, receive)
        code = request.query_params.get("link", "")
        if not code:
            return self.ask()
        user_id = self._login.use_link(code) if request.scope["method"] == "GET" else ""
        if user_id:
            # Browsers do not send a strict cookie with a redirect that began on another site.
            page = _PAGE.substitute(head=_REDIRECT, body='<p>You are logged in. <a href="/">Continue</a></p>')
            return self._with_cookie(HTMLResponse(page, headers=_NO_STORE), request, user_id)
        return self.ask("This link was already used or has expired. Print a new one with `workbench login-link`.")

    def ask(self, note: str = "", status: int = 401, retry_after: int = 0) -> Response:
        """The form; `note` says why the last attempt failed, and `retry_after` in how many seconds to try again."""
        shown = f'<p role="alert">{escape(note)}</p>' if note else ""
        headers = {**_NO_STORE, **({"retry-after": str(retry_after)} if retry_after else {})}
        return HTMLResponse(_PAGE.substitute(head="", body=_FORM.substitute(note=shown)), status, headers)

    async def _log_out(self, request: HTTPConnection) -> Response:
        if request.scope["method"] != "POST":
            return HTMLResponse(_PAGE.substitute(head="", body=_LOGOUT_FORM), headers=_NO_STORE)
        await run_in_threadpool(self._login.end_session, request.cookies.get(self._login.cookie, ""))
        page = _PAGE.substitute(head="", body=f'<p>You are logged out. <a href="{LOGIN_PATH}">Log in</a></p>')
        response = HTMLResponse(page, headers=_NO_STORE)
        response.delete_cookie(self._login.cookie, httponly=True, samesite="strict")
        return response

    async def _by_token(self, request: HTTPConnection, receive: Receive) -> Response:
        token = _typed_token(await _body(receive))
        try:
            actor, is_slow = await self._attempts.in_form(client_of(request.scope), token)
        except TooManyTriesError as problem:
            note = f"Too many tries from this address wait already. Try again in {problem.seconds} seconds."
            return self.ask(note, 429, problem.seconds)
        if actor is None and is_slow:
            note = "The token is wrong, and so were others: each answer now takes a while."
            return self.ask(note, 429, round(SLOW_SECONDS))
        if actor is None:
            return self.ask("The token is wrong.")
        return self._with_cookie(RedirectResponse("/", 303, _NO_STORE), request, actor.user_id or OWNER)

    def _with_cookie(self, response: Response, request: HTTPConnection, user_id: str) -> Response:
        response.set_cookie(
            self._login.cookie,
            self._login.new_session(user_id),
            max_age=SESSION_SECONDS,
            httponly=True,
            samesite="strict",
            secure=request.scope["scheme"] == "https",
        )
        return response


def _typed_token(body: bytes) -> bytes:
    """The token in the body of a form, as bytes; empty if there is none."""
    try:
        form = parse_qs(body.decode("latin-1"), max_num_fields=_MAX_FIELDS, encoding="latin-1")
    except ValueError:  # more fields than our form has
        return b""
    return form.get("token", [""])[0].encode("latin-1")


async def _body(receive: Receive) -> bytes:
    """The body of a request; empty if it is too long or incomplete."""
    body, has_more = b"", True
    while has_more:
        message = await receive()
        body += message.get("body", b"")
        if message["type"] != "http.request" or len(body) > _MAX_FORM_BYTES:
            return b""
        has_more = message.get("more_body", False)
    return body
