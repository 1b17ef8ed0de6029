"""Nothing of an answered request stays in the server: its objects are counted, not its time."""

from __future__ import annotations

import gc
import urllib.parse
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from ui.api.app import create_app
from workbench.settings import Settings

NUM_REQUESTS = 60
BODY = {"model": "both", "prompt": "the sea", "max_tokens": 2}


def _ask(api: TestClient, times: int) -> None:
    for number in range(times):
        body = {**BODY, "stream": number % 2 == 0, "user": f"user {number}"}
        assert api.post("/v1/completions", json=body).status_code == 200
        assert api.post("/v1/completions", json={**BODY, "model": f"absent {number}"}).status_code == 404
        assert api.get(f"/absent/{number}").status_code == 404


def _objects() -> Counter[str]:
    urllib.parse.clear_cache()  # the standard library's, which is bounded
    gc.collect()
    return Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.get_objects())


@pytest.mark.slow
def test_no_object_of_a_request_outlives_it(mixed: Path, host: Any) -> None:
    app = create_app(Settings(home=mixed), host, playground=False)
    with TestClient(app, base_url="http://127.0.0.1:8000") as api:
        _ask(api, 20)  # loads, compiles and caches what is made once
        before = _objects()
        _ask(api, NUM_REQUESTS)
        grown = {name: number for name, number in (_objects() - before).items() if number >= NUM_REQUESTS // 4}
    assert not grown
