"""Opens the studio in a browser once it responds; runs beside the servers as `python -P -m ui.serving.browser`."""

from __future__ import annotations

import os
import sys
import time
import webbrowser
from collections.abc import Mapping
from html import escape

from ui.addresses import REGISTRY_HEADER, registry_id, studio_address
from ui.serving.login import login_path
from workbench.access.home_token import LOGIN_FOLDER, access_token, needs_token
from workbench.settings import Settings, get_settings
from workbench.store.private_folder import private_folder, write_private

MAX_WAIT_SECONDS = 60.0


def can_browse(environment: Mapping[str, str] = os.environ, platform: str = sys.platform) -> bool:
    """Whether this machine is likely to have a screen and a user."""
    if environment.get("CI"):
        return False
    return platform == "darwin" or bool(environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY"))


def studio_answers(settings: Settings, seconds: float = 1.0) -> bool:
    """Whether this workbench's studio responds. The token is not sent: another program may listen on the port."""
    return _look(settings, seconds) is True


def another_answers(settings: Settings, seconds: float = 5.0) -> bool:
    """Whether another program responds at the studio's address: a login link opened there would be given away."""
    return _look(settings, seconds) is False


def _look(settings: Settings, seconds: float) -> bool | None:
    """Whether what responds at the studio's address proves that it knows the token, if there is one; None: nothing."""
    import httpx

    from ui.server_proof import CHALLENGE_HEADER, HEALTH_PATHS, is_proved, new_challenge

    address, token = studio_address(settings), access_token(settings)
    challenge = new_challenge(token)
    headers = {REGISTRY_HEADER: registry_id(settings), CHALLENGE_HEADER: challenge}
    try:
        with (
            httpx.Client(timeout=seconds, trust_env=False) as client,
            client.stream("GET", f"{address}{HEALTH_PATHS[1]}", headers=headers) as response,
        ):
            if token:
                return is_proved(settings, token, challenge, response, address)
    except (httpx.ProtocolError, httpx.ReadTimeout):  # it accepts, and does not answer as ours does
        return False
    except httpx.HTTPError:
        return None
    return response.is_success


def page_to_open(settings: Settings) -> str:
    """The address of a file that redirects to a login link; the studio's where it needs no login.

    Every user of a machine can read the arguments of a browser's process, but not this file.
    """
    if not needs_token(settings):
        return studio_address(settings)
    page = private_folder(settings.root / LOGIN_FOLDER) / "open.html"
    link = escape(studio_address(settings) + login_path(settings))
    write_private(page, f'<meta http-equiv="refresh" content="0; url={link}"><a href="{link}">Log in</a>'.encode())
    return page.as_uri()


def main() -> None:
    """Waits for the studio, then opens it. A missing browser is not an error: the address is printed anyway."""
    settings, deadline = get_settings(), time.monotonic() + MAX_WAIT_SECONDS
    while not studio_answers(settings):
        if time.monotonic() > deadline:
            return
        time.sleep(0.3)
    webbrowser.open(page_to_open(settings))


if __name__ == "__main__":
    main()
