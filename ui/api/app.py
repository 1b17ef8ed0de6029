"""The API server: OpenAI's routes and ours, the playground at /play, and a guard around it all."""

from __future__ import annotations

import gc
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn
from fastapi import Depends, FastAPI
from starlette.responses import FileResponse, RedirectResponse

from ui.addresses import require_safe_address
from ui.api import comparisons, completions, insight, jobs, operations, registry
from ui.api.error_responses import add_handlers
from ui.api.route_roles import check_role
from ui.api.schema import add_schema
from ui.generation.app_state import AppState
from ui.generation.model_host import ModelHost
from ui.generation.worker_pool import WorkerPool
from ui.serving.http_limits import LimitedHTTP
from ui.serving.security import Guard, api_rules
from workbench.settings import Settings, get_settings

if TYPE_CHECKING:
    from engine.loading.host import Host


class APIServer(uvicorn.Server):
    """Uvicorn, which closes the state of the app before it waits for the requests that are left."""

    def __init__(self, config: uvicorn.Config) -> None:
        assert isinstance(config.app, FastAPI)
        self._state: AppState = config.app.state.workbench
        config.http = LimitedHTTP
        super().__init__(config)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Refuses what waits; what runs has the time of grace."""
        self._state.close()
        await super().shutdown(sockets)


ICON = Path(__file__).parents[1] / "studio" / ".streamlit" / "icon.svg"  # the studio's


def create_app(settings: Settings | None = None, host: Host | None = None, *, playground: bool = True) -> FastAPI:
    """The whole application. `host` holds the weights; None loads them at the first request."""
    settings = settings or get_settings()
    require_safe_address(settings)
    state = AppState(settings, ModelHost(settings, host), WorkerPool(settings.max_streams, settings.max_waiting))
    # FastAPI's own /docs and /redoc load scripts from another server.
    app = FastAPI(
        title="Expert Workbench",
        version=version("expert-workbench"),
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
        dependencies=[Depends(check_role)],
    )
    app.state.workbench = state
    state.metrics.registry.register(operations.ServerNumbers(state))
    for module in (operations, completions, insight, comparisons, jobs, registry):
        app.include_router(module.router)
    add_handlers(app)
    add_schema(app)
    app.add_api_route("/favicon.ico", lambda: FileResponse(ICON, media_type="image/svg+xml"), include_in_schema=False)
    if playground:
        from ui.playground.app import mount

        mount(app, state)
        app.add_api_route("/", lambda: RedirectResponse("/play/"), include_in_schema=False)
    app.add_middleware(Guard, settings=settings, rules=api_rules(settings))
    app.add_middleware(operations.RequestRecord, metrics=state.metrics)  # around the guard: refusals also have ids
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    gc.collect()
    gc.freeze()  # what is imported stays: with it, searches for garbage take longer (benchmarks/registry.py)
    yield
    app.state.workbench.close()
