"""The login page, plain HTML: it asks for the token, and leads on once the browser has its cookie."""

from __future__ import annotations

from html import escape
from string import Template
from urllib.parse import parse_qs

from starlette.requests import HTTPConnection
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import Receive

from ui.serving.login import LOGIN_PATH, SESSION_SECONDS, Failures, Login

_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">$head
<title>Log in: Expert Workbench</title>
<style>
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 32rem; margin: 15vh auto; padding: 0 1rem }
:root { color-scheme: light dark }
input, button { font: inherit; padding: .4rem .6rem; width: 100%; box-sizing: border-box; margin-top: .5rem }
[role=alert] { border-left: 4px solid #c33; padding-left: .75rem }
</style>
</head>
<body>
<h1>Expert Workbench</h1>
$body
</body>
</html>
""")
_ASK = Template(f"""$note
<p>This workbench asks for its token. Open the link that <code>workbench up</code> printed, or print a new one with
<code>workbench login-link</code>. A link works once.</p>
<form method="post" action="{LOGIN_PATH}">
<label>Or type the token (<code>WORKBENCH_TOKEN</code>)
<input type="password" name="token" autocomplete="current-password" required autofocus></label>
<button>Log in</button>
</form>""")


_LEAD_ON = '\n<meta http-equiv="refresh" content="0; url=/">'
_MAX_FORM_BYTES, _MAX_FIELDS = 4096, 8
_NOT_KEPT = {"cache-control": "no-store"}


class LoginPage:
    """Answers what is asked of the login page: a visit, a link, a token that was typed."""

    def __init__(self, login: Login) -> None:
        self._login = login
        self._failures = Failures()

    async def answer(self, asked: HTTPConnection, receive: Receive) -> Response:
        """The form, or the way in."""
        if asked.scope["method"] == "POST":
            return await self._by_token(asked, receive)
        code = asked.query_params.get("link", "")
        if not code:
            return self.ask()
        if asked.scope["method"] == "GET" and self._login.use_link(code):
            # A redirect would still be the visit of whoever gave the link, which a strict cookie does not join.
            page = _PAGE.substitute(head=_LEAD_ON, body='<p>You are logged in. <a href="/">Go on</a></p>')
            return self._with_cookie(HTMLResponse(page, headers=_NOT_KEPT), asked)
        return self.ask("This link is used up or too old. Print a new one with `workbench login-link`.")

    def ask(self, note: str = "", status: int = 401) -> Response:
        """The form; `note` says what was wrong with the last try."""
        shown = f'<p role="alert">{escape(note)}</p>' if note else ""
        return HTMLResponse(_PAGE.substitute(head="", body=_ASK.substitute(note=shown)), status, _NOT_KEPT)

    async def _by_token(self, asked: HTTPConnection, receive: Receive) -> Response:
        body = await _body(receive)
        # Only now: while many forms were on their way, none of them had failed. From here on, nobody comes between.
        if self._failures.are_too_many():
            return self.ask("Too many wrong tokens. Wait a minute, or use `workbench login-link`.", 429)
        if not self._login.is_token(_typed_token(body)):
            self._failures.add()
            return self.ask("This is not the token.")
        return self._with_cookie(RedirectResponse("/", 303, _NOT_KEPT), asked)

    def _with_cookie(self, response: Response, asked: HTTPConnection) -> Response:
        response.set_cookie(
            self._login.cookie,
            self._login.new_session(),
            max_age=SESSION_SECONDS,
            httponly=True,
            samesite="strict",
            secure=asked.scope["scheme"] == "https",
        )
        return response


def _typed_token(body: bytes) -> bytes:
    """The token in what a form sent, whatever bytes it is of; nothing where there is none."""
    try:
        form = parse_qs(body.decode("latin-1"), max_num_fields=_MAX_FIELDS, encoding="latin-1")
    except ValueError:  # more fields than our form has
        return b""
    return form.get("token", [""])[0].encode("latin-1")


async def _body(receive: Receive) -> bytes:
    """What a form sent; nothing when it is too long or was cut off."""
    body, has_more = b"", True
    while has_more:
        message = await receive()
        body += message.get("body", b"")
        if message["type"] != "http.request" or len(body) > _MAX_FORM_BYTES:
            return b""
        has_more = message.get("more_body", False)
    return body
