"""`python -P -m ui.serving.studio_server`: the studio with access control, on loopback and the configured port."""

from __future__ import annotations

import gc
import os
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import Problem
from engine.plugins import require_extras

if TYPE_CHECKING:
    from collections.abc import Callable

    from workbench.access.actor import Actor
    from workbench.settings import Settings

SCRIPT = Path(__file__).parents[1] / "studio" / "app.py"


def options(settings: Settings) -> dict[str, Any]:
    """Streamlit's configuration: that of the file next to the script, and what depends on the settings or must hold.

    Streamlit reads such a file next to the program that starts it, which is this module, not the script.
    """
    from ui.addresses import STUDIO_HOST
    from ui.serving.security import MAX_UPLOAD_MIB

    written = tomllib.loads(SCRIPT.with_name(".streamlit").joinpath("config.toml").read_text(encoding="utf-8"))
    return _flat(written) | {
        "server.address": STUDIO_HOST,
        "server.port": settings.studio_port,
        "server.showEmailPrompt": False,
        # A full search for garbage after each run holds up the page that has just been drawn, and the next one: it took
        # longer than most runs (docs/performance.md). Python still searches on its own.
        "runner.postScriptGC": False,
        # Protects against DNS rebinding.
        "server.allowedHosts": [STUDIO_HOST, "localhost", *sorted(settings.own_names)],
        "server.maxUploadSize": MAX_UPLOAD_MIB,
        # A .streamlit folder in the working directory must not change these settings.
        "server.enableCORS": True,
        "server.enableXsrfProtection": True,
        "server.enableStaticServing": False,
        "server.baseUrlPath": "",
        "secrets.files": [str(SCRIPT.with_name(".streamlit") / "secrets.toml")],
        "browser.serverAddress": STUDIO_HOST,
        "global.developmentMode": False,
    }


def _flat(tables: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, value in tables.items():
        path = f"{prefix}{name}"
        result |= _flat(value, f"{path}.") if isinstance(value, dict) else {path: value}
    return result


def main() -> int:
    """Runs the server; gives the exit code where it cannot. A problem is one sentence."""
    try:
        require_extras("studio")
        from ui.addresses import require_safe_address
        from workbench.settings import get_settings

        settings = get_settings()
        require_safe_address(settings)
    except Problem as problem:
        print(problem, file=sys.stderr)
        return 2
    _serve(settings)
    return 0


def _serve(settings: Settings) -> None:
    from engine.device import prepare_process
    from workbench.store.private_folder import keep_temporary_files

    keep_temporary_files(settings)
    os.environ["FORWARDED_ALLOW_IPS"] = ""  # what uvicorn believes of a proxy: the guard reads its headers
    prepare_process(settings.threads)
    import plotly.graph_objects  # noqa: F401  # here, not while the first page with a chart draws
    from starlette.middleware import Middleware
    from streamlit.starlette import App

    from ui.serving.help_site import help_routes
    from ui.serving.http_limits import use_limits
    from ui.serving.security import Guard, studio_rules
    from workbench.access.actor import set_source

    # It guards every response: pages, web socket, uploads, media, static files, the help.
    guard = Middleware(Guard, settings=settings, rules=studio_rules(settings))
    set_source(studio_actor(settings))
    gc.collect()
    gc.freeze()  # what is imported stays: with it, searches for garbage take longer (benchmarks/registry.py)
    use_limits()
    App(SCRIPT, routes=help_routes(), middleware=[guard]).run(config=options(settings))


def studio_actor(settings: Settings) -> Callable[[], Actor]:
    """The user whose browser opened the web socket of the script that runs; nobody outside of one.

    Looked up again in each run of a script, so that a revoked user is out at once.
    """
    import streamlit as st

    from ui.serving.login import Login
    from workbench.access.actor import NOBODY

    login = Login(settings)

    def actor() -> Actor:
        headers = {name.lower(): value for name, value in st.context.headers.items()}
        return login.actor_of(headers, st.context.cookies) or NOBODY

    return actor


if __name__ == "__main__":
    sys.exit(main())
