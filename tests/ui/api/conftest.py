"""A client of the API in this process, without the playground; `api_settings` and `host` are those of its server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from ui.api.app import create_app
from workbench.settings import Settings


@pytest.fixture
def api_settings(mixed: Path) -> Settings:
    return Settings(home=mixed)


@pytest.fixture
def enter(mixed: Path, host: Any) -> Callable[..., TestClient]:
    """A client of a server with these settings."""

    def enter(**changes: Any) -> TestClient:
        app = create_app(Settings(home=mixed, **changes), host, playground=False)
        return TestClient(app, base_url="http://127.0.0.1:8000", raise_server_exceptions=False)

    return enter


@pytest.fixture
def api(api_settings: Settings, host: Any) -> Iterator[TestClient]:
    app = create_app(api_settings, host, playground=False)
    with TestClient(app, base_url="http://127.0.0.1:8000", raise_server_exceptions=False) as client:
        yield client
