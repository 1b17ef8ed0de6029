"""Login: of programs by a token, of browsers by a one-use link or a token; then a session cookie, until logout.

A link is a file in the home folder, and using it removes the file: so it works once, on any server and after any
restart. A logout leaves a file, so that its cookie is of no use to anyone. Links and cookies name a user, and are
signed with a secret of the home folder and its token together: a new token, or a removed `login` folder, invalidates
them all. Each request looks its user up: who is revoked is out at once.
"""

from __future__ import annotations

import base64
import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from ui.addresses import USER_HEADER, public_studio_address, registry_id
from ui.server_proof import prove
from workbench.access import users
from workbench.access.actor import OWNER, THE_OWNER, Actor, acting_as
from workbench.access.home_token import LOGIN_FOLDER, access_token, ensure_token, known_token, needs_token
from workbench.errors import NoRegistryError, RegistryUnavailableError
from workbench.registry.database import reading
from workbench.store.private_folder import create_private, private_folder, write_private

if TYPE_CHECKING:
    from workbench.settings import Settings

LOGIN_PATH, LOGOUT_PATH = "/login", "/logout"
LINK_SECONDS = 600
SESSION_SECONDS = 7 * 24 * 3600
_ENDED = "ended"  # the folder of sessions that a logout ended


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

    def actor_of(self, headers: Mapping[str, str], cookies: Mapping[str, str]) -> Actor | None:
        """Who sent a request or opened a web socket; None for nobody. The names of headers are in lower case.

        A cookie counts before a token: a browser sends an old password along with a new login.
        """
        of_token = None
        if self.is_needed and not self.actor_of_session(cookies.get(self.cookie, "")):
            of_token = self.actor_of_token(token_in(headers))
        return self.actor_with(of_token, headers, cookies)

    def actor_with(
        self, of_token: Actor | None, headers: Mapping[str, str], cookies: Mapping[str, str]
    ) -> Actor | None:
        """The same, where it is known whose token the headers carry.

        The studio asks the API with the token of the workbench, and names its user.
        """
        if not self.is_needed:
            return THE_OWNER
        actor = of_token or self.actor_of_session(cookies.get(self.cookie, ""))
        if actor is THE_OWNER and (user_id := headers.get(USER_HEADER, "")):
            return self.actor_of_id(user_id)
        return actor

    def actor_of_token(self, value: bytes) -> Actor | None:
        """Whose token this is; None for nobody's. The token of the workbench is compared in constant time."""
        token = self._token
        if token and secrets.compare_digest(value, token):
            return THE_OWNER
        if not value.startswith(users.TOKEN_START.encode()):
            return None
        return self._user(lambda session: users.actor_of_token(session, value.decode("latin-1")))

    def prove(self, challenge: str, end: tuple[str, int] | None) -> str:
        """The proof that this server knows the token of whoever asks."""
        return prove(self._settings, known_token(self._settings), challenge, end)

    @property
    def _token(self) -> bytes:
        return access_token(self._settings).encode()

    def new_link(self, user_id: str = OWNER) -> str:
        """A new one-use code for the URL of the login page."""
        code, secret = secrets.token_urlsafe(32), self._new_secret()
        self._write("links", self._sign(secret, "link", code), self._clock() + LINK_SECONDS, user_id)
        return code

    def use_link(self, code: str) -> str:
        """Uses a link: the id of its user, empty where its code is not valid. The link cannot be used again."""
        link = self._folder / "links" / self._sign(self._secret(), "link", code)
        is_expired, user_id = self._is_expired(link), self._link(link)[1]
        try:
            link.unlink()
        except FileNotFoundError:  # it never existed, or another request used it
            return ""
        return "" if is_expired else user_id

    def new_session(self, user_id: str = OWNER) -> str:
        """The value of a new cookie."""
        secret = self._new_secret()
        session = f"{int(self._clock()) + SESSION_SECONDS}.{secrets.token_urlsafe(16)}.{user_id}"
        return f"{session}.{self._sign(secret, 'session', session)}"

    def actor_of_session(self, cookie: str) -> Actor | None:
        """Whose cookie this is; None unless it is valid, not expired, and its user is not revoked."""
        session, _, signature = cookie.rpartition(".")
        if not secrets.compare_digest(signature.encode(), self._sign(self._secret(), "session", session).encode()):
            return None
        expires, _, rest = session.partition(".")
        if int(expires) <= self._clock() or (self._folder / _ENDED / signature).exists():
            return None
        user_id = rest.rpartition(".")[2]
        return THE_OWNER if user_id == OWNER else self.actor_of_id(user_id)

    def end_session(self, cookie: str) -> None:
        """Ends the login of a cookie in every window and on every server."""
        if actor := self.actor_of_session(cookie):
            expires, signature = int(cookie.partition(".")[0]), cookie.rpartition(".")[2]
            self._write(_ENDED, signature, expires, actor.user_id or OWNER)

    def actor_of_id(self, id: str) -> Actor | None:
        """The user with this id who is not revoked."""
        return self._user(lambda session: users.actor_of_id(session, id))

    def _user(self, find: Callable[[Any], Actor | None]) -> Actor | None:
        """A user of the registry; None without a registry. Raises RegistryUnavailableError if it does not respond."""
        try:
            with acting_as(THE_OWNER), reading(self._settings) as session:
                return find(session)
        except RegistryUnavailableError:
            raise
        except NoRegistryError:
            return None

    def _write(self, folder: str, name: str, expires: float, user_id: str) -> None:
        """Writes a link or an ended session, and removes those of its folder that have expired."""
        private = private_folder(self._folder / folder)
        for old in private.glob("[!.]*"):
            if self._is_expired(old):
                old.unlink(missing_ok=True)
        write_private(private / name, f"{expires} {user_id}".encode())

    def _is_expired(self, link: Path) -> bool:
        return self._link(link)[0] <= self._clock()

    def _link(self, link: Path) -> tuple[float, str]:
        """When a link expires, and the id of its user."""
        try:
            expires, user_id = link.read_text(encoding="ascii").split(" ")
            return float(expires), user_id
        except (FileNotFoundError, ValueError):
            return 0.0, ""

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


def token_in(headers: Mapping[str, str]) -> bytes:
    """The token of a request: as a bearer, or as the password that a browser asks for; empty where it has none."""
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return value.strip().encode("latin-1")  # as headers are read
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).partition(b":")[2]
        except ValueError:
            return b""
    return b""


def login_link(settings: Settings, user_id: str = OWNER) -> str:
    """A new URL that logs one browser in to the studio, as this user. It works once, within ten minutes."""
    return public_studio_address(settings) + login_path(settings, user_id)


def login_path(settings: Settings, user_id: str = OWNER) -> str:
    """The path of a new login link, which works at each address of the studio."""
    ensure_token(settings)
    return f"{LOGIN_PATH}?{urlencode({'link': Login(settings).new_link(user_id)})}"
