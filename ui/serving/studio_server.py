"""`python -P -m ui.serving.studio_server`: the studio with access control, on loopback and the configured port."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.device import prepare_process
from ui.addresses import STUDIO_HOST
from workbench.settings import Settings, get_settings

SCRIPT = Path(__file__).parents[1] / "studio" / "app.py"


def options(settings: Settings) -> dict[str, Any]:
    """Streamlit's configuration."""
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


def main() -> None:
    """Runs the server."""
    settings = get_settings()
    prepare_process(settings.threads)
    from starlette.middleware import Middleware
    from streamlit.starlette import App

    from ui.serving.security import Guard, studio_rules

    # It guards every response of Streamlit: pages, web socket, uploads, media, static files.
    guard = Middleware(Guard, settings=settings, rules=studio_rules(settings))
    App(SCRIPT, middleware=[guard]).run(config=options(settings))


if __name__ == "__main__":
    main()
