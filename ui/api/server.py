"""The web server of the API: when it stops, requests that still wait or follow a job end at once."""

from __future__ import annotations

import socket

import uvicorn
from fastapi import FastAPI

from ui.generation.app_state import AppState
from ui.serving.http_limits import LimitedHTTP


class Server(uvicorn.Server):
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
