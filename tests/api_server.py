"""The API server in a thread of a test's process, and ports that nobody listens on."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from ui.api.app import APIServer


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serve_api(app: FastAPI, port: int, log_level: str = "error") -> Iterator[APIServer]:
    """A server of the application, until the end of the block."""
    server = APIServer(uvicorn.Config(app, port=port, log_level=log_level, timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run)
    thread.start()
    until = time.monotonic() + 60
    while not server.started:
        assert time.monotonic() < until, "the server did not start"
        time.sleep(0.01)
    try:
        yield server
    finally:
        server.should_exit = True
        thread.join()
