"""The API server with the playground, in a thread of this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvicorn

from ui.api.app import APIServer, create_app
from workbench.settings import Settings


@pytest.fixture
def url(
    settings: Settings, host: Any, wait_until: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """Where the playground is served, with the fake host."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = APIServer(
        uvicorn.Config(
            create_app(settings, host), port=settings.api_port, log_level="critical", timeout_graceful_shutdown=1
        )
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    wait_until(lambda: server.started)
    yield f"http://127.0.0.1:{settings.api_port}/play/"
    server.should_exit = True
    thread.join()
