"""`python -P -m ui.api`: the API server and the playground, on the address of this machine's settings."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from engine.errors import Problem
from engine.plugins import require_extras

if TYPE_CHECKING:
    from workbench.settings import Settings

GRACE_SECONDS = 3  # for streams that run when the server is stopped
STARTUP_FAILURE = 3  # uvicorn's exit code


def serve(settings: Settings) -> None:
    """Listens until it is stopped. Raises a Problem if another server has the port or the GPU."""
    from jobs.queue.device_registration import tenancy
    from ui.addresses import api_address, require_free_port
    from ui.serving.gpu_lease import gpu_lease

    require_free_port(settings.api_port, "WORKBENCH_API_PORT", settings.host)
    with gpu_lease(settings) as uuid, tenancy(settings, uuid, api_address(settings)):
        _listen(settings)


def _listen(settings: Settings) -> None:
    import uvicorn

    from ui.api.app import APIServer, create_app

    app = create_app(settings)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.api_port,
        log_level="info",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # the guard reads them
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    server = APIServer(config)
    with suppress(KeyboardInterrupt):
        server.run()
    if not server.started:
        sys.exit(STARTUP_FAILURE)


def main() -> int:
    """Gives the exit code; a problem is one sentence."""
    try:
        require_extras("api")
        serve(_settings())
    except Problem as problem:
        print(problem, file=sys.stderr)
        return 2
    return 0


def _settings() -> Settings:
    from engine.device import prepare_process
    from workbench.settings import get_settings
    from workbench.store.private_folder import keep_temporary_files

    settings = get_settings()
    keep_temporary_files(settings)  # before Gradio reads where they go
    prepare_process(settings.threads)  # before anything wakes torch
    return settings


if __name__ == "__main__":
    sys.exit(main())
