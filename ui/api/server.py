"""The web server of the API: when it stops, a request that still waits for a slot is refused at once."""

from __future__ import annotations

import socket

import uvicorn
from fastapi import FastAPI

from ui.generation.worker_pool import WorkerPool


class Server(uvicorn.Server):
    """Uvicorn, which closes the queue of generations before it waits for the requests that are left."""

    def __init__(self, config: uvicorn.Config) -> None:
        assert isinstance(config.app, FastAPI)
        self._slots: WorkerPool = config.app.state.workbench.slots
        super().__init__(config)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Refuses what waits; what runs has the time of grace."""
        self._slots.close()
        await super().shutdown(sockets)
