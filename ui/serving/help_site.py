"""The help at /help/: the site that `make docs` builds of docs/ into the folder `help` next to this file."""

from __future__ import annotations

import os
from pathlib import Path

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.staticfiles import StaticFiles

from ui.addresses import HELP_PATH

FOLDER = Path(__file__).with_name("help")
_NOT_BUILT = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Help</title>
<h1>The help is not built</h1>
<p>Run <code>make docs</code> in the folder of the source code, then reload this page.
Until then, read the files in its folder <code>docs</code>.</p></html>"""


def help_routes(folder: Path = FOLDER) -> list[BaseRoute]:
    """The routes of the help. They answer what lies in its folder, and no link out of it."""
    files = StaticFiles(directory=folder, html=True, check_dir=False)

    async def answer(request: Request) -> Response:
        if not (folder / "index.html").is_file():
            return HTMLResponse(_NOT_BUILT, 404)
        return await files.get_response(os.path.normpath(request.path_params["path"]), request.scope)

    async def redirect(_: Request) -> Response:
        return RedirectResponse(HELP_PATH)

    return [Route(HELP_PATH.rstrip("/"), redirect), Route(HELP_PATH + "{path:path}", answer)]
