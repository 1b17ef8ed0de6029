"""`python -P -m ui.serving.studio_server`: the studio with access control, on loopback and the configured port."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.extras import MissingExtra, require_extras

if TYPE_CHECKING:
    from workbench.settings import Settings

SCRIPT = Path(__file__).parents[1] / "studio" / "app.py"


def options(settings: Settings) -> dict[str, Any]:
    """Streamlit's configuration."""
    from ui.addresses import STUDIO_HOST

    return {
        "server.address": STUDIO_HOST,
        "server.port": settings.studio_port,
        "server.headless": True,
        "server.fileWatcherType": "none",
        "server.showEmailPrompt": False,
        # Protects against DNS rebinding.
        "server.allowedHosts": [STUDIO_HOST, "localhost"],
        # A .streamlit folder in the working directory must not change these settings.
        "server.enableCORS": True,
        "server.enableXsrfProtection": True,
        "server.enableStaticServing": False,
        "server.baseUrlPath": "",
        "secrets.files": [str(SCRIPT.with_name(".streamlit") / "secrets.toml")],
        "browser.serverAddress": STUDIO_HOST,
        "browser.gatherUsageStats": False,
        "global.developmentMode": False,
    }


def main() -> int:
    """Runs the server; gives the exit code where it cannot. A missing extra is one sentence."""
    try:
        require_extras("studio")
    except MissingExtra as missing:
        print(missing, file=sys.stderr)
        return 2
    _serve()
    return 0


def _serve() -> None:
    from engine.device import prepare_process
    from workbench.settings import get_settings

    settings = get_settings()
    prepare_process(settings.threads)
    from starlette.middleware import Middleware
    from streamlit.starlette import App

    from ui.serving.security import Guard, studio_rules

    # It guards every response of Streamlit: pages, web socket, uploads, media, static files.
    guard = Middleware(Guard, settings=settings, rules=studio_rules(settings))
    App(SCRIPT, middleware=[guard]).run(config=options(settings))


if __name__ == "__main__":
    sys.exit(main())
