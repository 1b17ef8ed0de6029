"""workbench view: saved views are saved, listed and deleted, here and over HTTP."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from ui.api.app import create_app
from ui.cli.app import main
from workbench.settings import Settings

PATH = "/v1/workbench/views"


@pytest.mark.usefixtures("home")
def test_a_view_is_saved_listed_and_deleted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["view", "save", "adapters", "/experts?method=lora"]) == 0
    assert capsys.readouterr().out == "“adapters” is saved: /experts?method=lora\n"
    assert main(["view", "list", "--json"]) == 0
    [view] = json.loads(capsys.readouterr().out)
    assert (view["name"], view["address"]) == ("adapters", "/experts?method=lora")
    assert main(["view", "save", "evil", "//evil.example"]) == 2
    assert main(["view", "delete", "adapters"]) == 0
    assert main(["view", "delete", "adapters"]) == 2


def test_views_over_http(home: Path) -> None:
    app = create_app(Settings(home=home), playground=False)
    with TestClient(app, base_url="http://127.0.0.1:8000") as api:
        saved = api.put(f"{PATH}/law/adapters", json={"address": "/experts?method=lora"})
        assert (saved.status_code, saved.json()["name"]) == (200, "law/adapters")
        assert api.get(PATH, params={"page": "/experts"}).json()["data"] == [saved.json()]
        assert api.get(PATH, params={"page": "/jobs"}).json()["data"] == []
        assert api.put(f"{PATH}/evil", json={"address": "https://evil.example"}).status_code == 422
        assert api.get(f"{PATH}/evil").status_code == 404
        assert api.delete(f"{PATH}/law/adapters").json() == saved.json()
        assert api.delete(f"{PATH}/law/adapters").status_code == 404
