"""Opens the studio in the browser once it answers; `python -P -m ui.browser URL` does so beside the servers."""

from __future__ import annotations

import os
import sys
import time
import webbrowser
from collections.abc import Mapping

PATIENCE_SECONDS = 60.0


def can_browse(environment: Mapping[str, str] = os.environ, platform: str = sys.platform) -> bool:
    """Whether a person with a screen is likely to sit here."""
    if environment.get("CI"):
        return False
    return platform == "darwin" or bool(environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY"))


def answers(url: str, seconds: float = 1.0) -> bool:
    """Whether a server answers well."""
    import httpx

    try:
        return httpx.get(url, timeout=seconds, trust_env=False).is_success
    except httpx.HTTPError:
        return False


def studio_answers(address: str) -> bool:
    """Whether the studio is awake at an address."""
    return answers(f"{address}/_stcore/health")


def main() -> None:
    """Waits for the studio, then opens it; a missing browser is no failure, since the address was printed."""
    address, over = sys.argv[1], time.monotonic() + PATIENCE_SECONDS
    while not studio_answers(address):
        if time.monotonic() > over:
            return
        time.sleep(0.3)
    webbrowser.open(address)


if __name__ == "__main__":
    main()
