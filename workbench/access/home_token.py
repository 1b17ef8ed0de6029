"""The token of a workbench: WORKBENCH_TOKEN, else a random one in the home folder, which the first server makes.

Only the owner may read the file. It is read when it is needed, so that a new token counts at once, in every process.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.errors import StorageError
from workbench.store.private_folder import create_private, private_folder, write_private

if TYPE_CHECKING:
    from workbench.settings import Settings

LOGIN_FOLDER = "login"  # in the home folder
TOKEN_BYTES = 32


def needs_token(settings: Settings) -> bool:
    """Whether the servers require a token: always, but for WORKBENCH_NO_AUTH without WORKBENCH_TOKEN."""
    return bool(settings.token.get_secret_value()) or not settings.no_auth


def access_token(settings: Settings) -> str:
    """The token that the servers require and programs send; empty where none is needed, made yet or readable."""
    return known_token(settings) if needs_token(settings) else ""


def known_token(settings: Settings) -> str:
    """The token also where none is needed: a server proves by it which workbench it is of."""
    if token := settings.token.get_secret_value():
        return token
    try:
        return _file(settings).read_text(encoding="latin-1").strip()
    except OSError:
        return ""


def ensure_token(settings: Settings) -> str:
    """The token; a home folder that needs one and has none gets it. Raises StorageError where it cannot be kept."""
    if not needs_token(settings):
        return ""
    if token := access_token(settings):
        return token
    private_folder(settings.root)
    create_private(private_folder(settings.root / LOGIN_FOLDER) / _file(settings).name, _new_token())
    if token := access_token(settings):
        return token
    raise StorageError(f"The token in {_file(settings)} cannot be read.", "Remove that file: a new one is made.")


def renew_token(settings: Settings) -> str:
    """Another token in place of the one in the home folder, which ends all logins."""
    private_folder(settings.root)
    write_private(private_folder(settings.root / LOGIN_FOLDER) / _file(settings).name, _new_token())
    return access_token(settings)


def _new_token() -> bytes:
    return secrets.token_urlsafe(TOKEN_BYTES).encode()


def _file(settings: Settings) -> Path:
    return settings.root / LOGIN_FOLDER / "token"
