"""HTML that a viewer sends is never shown to anyone else, nor back to the viewer as HTML."""

from __future__ import annotations

import json
import secrets
from typing import Any

import httpx
import pytest

from workbench.access.actor import Role
from workbench.access.users import add_user
from workbench.registry.database import transaction
from workbench.settings import Settings

HTML = "<img src=x onerror=steal()>"
CHIP = {"name": HTML, "mark": HTML, "colour": HTML, "letters": HTML, "on": True, "active": True}
CHIPS = {"experts": [{**CHIP, "weight": 1.0, "stored": 1.0}], "open": HTML, "without": HTML}
GIVEN = {"checkbox": True, "state": None}


class Viewer:
    """A program with a viewer's token that sends the page's events with HTML wherever the page has a value."""

    def __init__(self, url: str, settings: Settings) -> None:
        with transaction(settings) as session:
            token = add_user(session, "Vera", Role.VIEWER.title).token
        self._client = httpx.Client(base_url=url, headers={"authorization": f"Bearer {token}"}, timeout=60.0)
        self.session = secrets.token_hex(8)
        config = self._client.get("config").raise_for_status().json()
        self._components = {one["id"]: one for one in config["components"]}
        self.events = [one for one in config["dependencies"] if one["backend_fn"]]
        self._send(next(one for one in self.events if "load" in [name for _, name in one["targets"]]), [])

    def store(self) -> httpx.Response:
        """Asks Gradio to store what it holds of this session under a link."""
        return self._client.get("gradio_api/deep_link", params={"session_hash": self.session})

    def values_of(self, event: Any) -> list[Any]:
        """HTML in place of each text and each HTML of an event's inputs, and else what the page has."""
        return [self._value(self._components[one]) for one in event["inputs"]]

    def _value(self, component: Any) -> Any:
        kind, value = component["type"], component["props"].get("value")
        if kind == "html":
            return CHIPS if isinstance(value, dict) else HTML
        return HTML if kind == "textbox" else [] if kind == "checkboxgroup" else value

    def html_from(self, event: Any) -> list[Any]:
        """What an event wrote into the HTML components of the page."""
        outputs = [self._components[one]["type"] for one in event["outputs"]]
        written = self._send(event, self.values_of(event))
        return [value for values in written for kind, value in zip(outputs, values, strict=False) if kind == "html"]

    def _send(self, event: Any, values: list[Any]) -> list[list[Any]]:
        body = {"data": values, "fn_index": event["id"], "session_hash": self.session}
        self._client.post("gradio_api/queue/join", json=body).raise_for_status()
        written = []
        with self._client.stream("GET", "gradio_api/queue/data", params={"session_hash": self.session}) as stream:
            for line in (one.removeprefix("data: ") for one in stream.iter_lines() if one.startswith("data: ")):
                message = json.loads(line)
                written.append((message.get("output") or {}).get("data") or [])
                if message["msg"] == "process_completed":
                    return written
        raise AssertionError("The event did not end.")


@pytest.fixture
def viewer(url: str, settings: Settings) -> Viewer:
    return Viewer(url, settings)


@pytest.mark.filterwarnings("ignore")
def test_no_event_returns_html_that_was_sent(viewer: Viewer) -> None:
    returned = [
        (event["id"], event["targets"]) for event in viewer.events if HTML in json.dumps(viewer.html_from(event))
    ]
    assert len(viewer.events) > 20
    assert returned == []


@pytest.mark.filterwarnings("ignore")
def test_what_a_viewer_sends_cannot_be_stored_for_the_owner_to_open(viewer: Viewer, url: str) -> None:
    """Gradio stores what a session holds, which is what was sent and returned, and shows it to whoever has the link."""
    for event in viewer.events:
        viewer.html_from(event)
    stored = viewer.store()
    link = stored.json() if stored.is_success else "0" * 64
    owner = httpx.Client(base_url=url, headers={"authorization": "Bearer s3cret"}, timeout=60.0)
    for page in ("", "config"):
        answer = owner.get(page, params={"deep_link": link})
        assert (stored.status_code, answer.status_code) == (404, 400)
        assert "steal" not in answer.text
