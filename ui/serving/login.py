"""Browser login: by a one-use link or the token itself; then a session cookie.

A link is a file in the home folder, and using it removes the file: so it works once, on any server and after any
restart. Links and cookies are signed with a secret of the home folder and the token together: a new token, or a removed
`login` folder, invalidates them all.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from ui.addresses import registry_id, studio_address
from workbench.access.home_token import LOGIN_FOLDER, access_token, ensure_token, needs_token
from workbench.store.private_files import create_private, write_private
from workbench.store.private_folder import private_folder

if TYPE_CHECKING:
    from workbench.settings import Settings

LOGIN_PATH = "/login"
LINK_SECONDS = 600
SESSION_SECONDS = 7 * 24 * 3600
MAX_FAILURES, FAILURE_SECONDS = 5, 60.0


class Login:
    """Makes and checks login links and session cookies of one workbench."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._folder = settings.root / LOGIN_FOLDER
        self._clock = clock
        # Cookies belong to a host and not to a port: two workbenches of one machine need two names.
        self.cookie = f"workbench_{registry_id(settings)}"

    @property
    def is_needed(self) -> bool:
        """Whether the servers require a token."""
        return needs_token(self._settings)

    def is_token(self, value: bytes) -> bool:
        """Whether this is the token, compared in constant time."""
        token = self._token
        return bool(token) and secrets.compare_digest(value, token)

    @property
    def _token(self) -> bytes:
        return access_token(self._settings).encode()

    def new_link(self) -> str:
        """A new one-use code for the URL of the login page."""
        code, secret = secrets.token_urlsafe(32), self._new_secret()
        links = private_folder(self._folder / "links")
        for old in links.glob("[!.]*"):
            if self._is_expired(old):
                old.unlink(missing_ok=True)
        write_private(links / self._sign(secret, "link", code), str(self._clock() + LINK_SECONDS).encode())
        return code

    def use_link(self, code: str) -> bool:
        """Uses a link: whether its code is valid. The link cannot be used again."""
        link = self._folder / "links" / self._sign(self._secret(), "link", code)
        is_expired = self._is_expired(link)
        try:
            link.unlink()
        except FileNotFoundError:  # it never existed, or another request used it
            return False
        return not is_expired

    def new_session(self) -> str:
        """The value of a new cookie."""
        secret = self._new_secret()
        session = f"{int(self._clock()) + SESSION_SECONDS}.{secrets.token_urlsafe(16)}"
        return f"{session}.{self._sign(secret, 'session', session)}"

    def is_session(self, cookie: str) -> bool:
        """Whether a cookie is valid and not expired."""
        session, _, signature = cookie.rpartition(".")
        if not secrets.compare_digest(signature.encode(), self._sign(self._secret(), "session", session).encode()):
            return False
        return int(session.partition(".")[0]) > self._clock()

    def _is_expired(self, link: Path) -> bool:
        try:
            return float(link.read_text(encoding="ascii")) <= self._clock()
        except (FileNotFoundError, ValueError):
            return True

    def _sign(self, secret: bytes, purpose: str, text: str) -> str:
        key = hmac.digest(secret, self._token, "sha256")
        return hmac.new(key, f"{purpose}:{text}".encode(), "sha256").hexdigest()

    def _new_secret(self) -> bytes:
        """The secret of the home folder, which is created if it is missing."""
        if not (self._folder / "secret").exists():
            create_private(private_folder(self._folder) / "secret", secrets.token_bytes(32))
        return self._secret()

    def _secret(self) -> bytes:
        try:
            return (self._folder / "secret").read_bytes()
        except FileNotFoundError:
            return secrets.token_bytes(32)  # nothing was signed yet


class Failures:
    """Counts wrong tokens, to limit their rate."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._times: deque[float] = deque(maxlen=MAX_FAILURES)

    def add(self) -> None:
        """Counts a wrong token."""
        self._times.append(self._clock())

    def are_too_many(self) -> bool:
        """Whether the limit is reached."""
        return len(self._times) == MAX_FAILURES and self._clock() - self._times[0] < FAILURE_SECONDS


def login_link(settings: Settings) -> str:
    """A new URL that logs one browser in to the studio. It works once, within ten minutes."""
    ensure_token(settings)
    return f"{studio_address(settings)}{LOGIN_PATH}?{urlencode({'link': Login(settings).new_link()})}"
