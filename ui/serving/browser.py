"""Opens the studio in the browser once it answers; `python -P -m ui.serving.browser` does so beside the servers."""

from __future__ import annotations

import os
import sys
import time
import webbrowser
from collections.abc import Mapping
from html import escape

from ui.serving.addresses import REGISTRY_HEADER, registry_id, studio_address
from ui.serving.login import login_link
from ui.serving.private_files import private_folder, write_private
from workbench.settings import Settings, get_settings

PATIENCE_SECONDS = 60.0


def can_browse(environment: Mapping[str, str] = os.environ, platform: str = sys.platform) -> bool:
    """Whether a person with a screen is likely to sit here."""
    if environment.get("CI"):
        return False
    return platform == "darwin" or bool(environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY"))


def studio_answers(settings: Settings, seconds: float = 1.0) -> bool:
    """Whether this workbench's studio is awake. It is asked without the token: another program may listen there."""
    import httpx

    url, headers = f"{studio_address(settings)}/_stcore/health", {REGISTRY_HEADER: registry_id(settings)}
    try:
        answer = httpx.get(url, headers=headers, timeout=seconds, trust_env=False)
    except httpx.HTTPError:
        return False
    return answer.is_success or answer.status_code == 401  # it asks for the token, so it is awake


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
