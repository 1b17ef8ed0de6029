"""Opens the studio in the browser once it answers; `python -P -m ui.browser` does so beside the servers."""

from __future__ import annotations

import os
import sys
import time
import webbrowser
from collections.abc import Mapping
from html import escape

from ui.addresses import studio_address
from ui.login import login_link
from ui.private_files import private_folder, write_private
from workbench.settings import Settings, get_settings

PATIENCE_SECONDS = 60.0


def can_browse(environment: Mapping[str, str] = os.environ, platform: str = sys.platform) -> bool:
    """Whether a person with a screen is likely to sit here."""
    if environment.get("CI"):
        return False
    return platform == "darwin" or bool(environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY"))


def answers(url: str, token: str = "", seconds: float = 1.0) -> bool:
    """Whether a server answers well."""
    import httpx

    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        return httpx.get(url, headers=headers, timeout=seconds, trust_env=False).is_success
    except httpx.HTTPError:
        return False


def studio_answers(settings: Settings) -> bool:
    """Whether this workbench's studio is awake."""
    return answers(f"{studio_address(settings)}/_stcore/health", settings.token.get_secret_value())


def page_to_open(settings: Settings) -> str:
    """The studio's address. With a token, that of a file that leads to a login link.

    Every user of a machine can read what a browser is started with, but not this file.
    """
    if not settings.token.get_secret_value():
        return studio_address(settings)
    page = private_folder(settings.root / "login") / "open.html"
    link = escape(login_link(settings))
    write_private(page, f'<meta http-equiv="refresh" content="0; url={link}"><a href="{link}">Log in</a>'.encode())
    return page.as_uri()


def main() -> None:
    """Waits for the studio, then opens it; a missing browser is no failure, since the address was printed."""
    settings, over = get_settings(), time.monotonic() + PATIENCE_SECONDS
    while not studio_answers(settings):
        if time.monotonic() > over:
            return
        time.sleep(0.3)
    webbrowser.open(page_to_open(settings))


if __name__ == "__main__":
    main()
