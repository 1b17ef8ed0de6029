"""The API server with the playground, in a thread of this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.api_server import serve_api
from ui.api.app import create_app
from workbench.settings import Settings


@pytest.fixture
def url(settings: Settings, host: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Where the playground is served, with the fake host."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serve_api(create_app(settings, host), settings.api_port, "critical"):
        yield f"http://127.0.0.1:{settings.api_port}/play/"
