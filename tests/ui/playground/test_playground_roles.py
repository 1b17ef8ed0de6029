"""The roles of the playground: each of its events runs as the user who sent it, and the audit log names who votes."""

from __future__ import annotations

import asyncio
import json
import secrets
from pathlib import Path
from typing import Any

import gradio as gr
import httpx
import pytest
from gradio.state_holder import SessionState

from tests.ui.playground.test_playground import inputs
from ui.generation.app_state import AppState
from ui.generation.worker_pool import WorkerPool
from ui.playground.blocks import PlaygroundBlocks
from ui.playground.player import Player
from workbench.access.actor import NOBODY, Role, current_actor, require
from workbench.access.audit import list_entries
from workbench.access.users import add_user
from workbench.registry.database import reading, transaction
from workbench.settings import Settings

OWNERS = "s3cret"  # the token of `settings`
SIDES = ("both", "both/law", "both", "both/law")


class Window:
    """A browser's window of the playground, which sends events as the page does."""

    def __init__(self, url: str, token: str, settings: Settings, host: Any) -> None:
        self._client = httpx.Client(base_url=url, headers={"authorization": f"Bearer {token}"}, timeout=60.0)
        config = self._client.get("config").raise_for_status().json()
        self._ids = {one["props"].get("elem_id"): one["id"] for one in config["components"]}
        self._events = config["dependencies"]
        self._values = inputs(Player(AppState(settings, host, WorkerPool(1, 1))), *SIDES)
        self._values[1] = 2  # panes
        self._session = secrets.token_hex(8)
        self._run(next(one for one in self._events if "load" in [name for _, name in one["targets"]]))

    def click(self, elem_id: str, *values: Any) -> str:
        """The first event of a button, as its JSON of all messages."""
        target = self._ids[elem_id]
        event = next(
            one for one in self._events if [target, "click"] in one["targets"] and one["backend_fn"] and one["outputs"]
        )
        return self._run(event, values)

    def then(self, elem_id: str, *values: Any) -> str:
        """What follows the event of a button."""
        target = self._ids[elem_id]
        first = next(one for one in self._events if [target, "click"] in one["targets"] and one["backend_fn"])
        return self._run(next(one for one in self._events if one["trigger_after"] == first["id"]), values)

    def generate(self) -> str:
        """Generates in both panes, and stores the answers."""
        values = [None, *self._values]
        return self.click("generate", *values) + self.then("generate", *values)

    def vote(self) -> str:
        """Votes for A."""
        return self.click("vote-a", None, "A–B", *self._values)

    def _run(self, event: Any, values: tuple[Any, ...] = ()) -> str:
        body = {"data": list(values), "fn_index": event["id"], "session_hash": self._session}
        self._client.post("gradio_api/queue/join", json=body).raise_for_status()
        with self._client.stream("GET", f"gradio_api/queue/data?session_hash={self._session}") as stream:
            messages = []
            for line in stream.iter_lines():
                if line.startswith("data: "):
                    messages.append(json.loads(line.removeprefix("data: ")))
                    if messages[-1]["msg"] == "process_completed":
                        break
        return json.dumps(messages, ensure_ascii=False)


def log_of(settings: Settings) -> list[tuple[str, str, str, str]]:
    """User, action, kind and details of each entry on comparisons and votes, the oldest first."""
    with reading(settings) as session:
        entries = [entry for entry in list_entries(session) if entry.kind in ("comparison", "vote")]
    return [(entry.user, entry.action, entry.kind, entry.details) for entry in reversed(entries)]


@pytest.fixture
def windows(url: str, settings: Settings, host: Any) -> list[Window]:
    """One of a user of each role, called by it, and one of the owner, who comes first."""
    with transaction(settings) as session:
        tokens = [add_user(session, role.title, role.title).token for role in Role]
    windows = [Window(url, token, settings, host) for token in (OWNERS, *tokens)]
    assert all("sea2" in window.generate() for window in windows)
    return windows


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_every_role_generates_and_votes_under_its_own_name(windows: list[Window], settings: Settings) -> None:
    owner, viewer, *others = windows
    for window in (viewer, *others, owner, viewer):
        assert '"success": true' in window.vote()
    names = ["owner", *(role.title for role in Role)]
    assert log_of(settings) == [
        *((name, "add", "comparison", "") for name in names),
        *((name, "add", "vote", "A and B: a") for name in (*names[1:], "owner")),
        ("viewer", "delete", "vote", "A and B"),  # the same vote again withdraws it
    ]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_an_event_may_do_what_its_user_may_and_no_more(windows: list[Window], monkeypatch: pytest.MonkeyPatch) -> None:
    """Today no event needs more than a viewer; one that did would be refused as by the API."""
    monkeypatch.setattr("workbench.registry.comparisons.vote", lambda *_: require(Role.EDITOR))
    _, viewer, editor, _ = windows
    assert "This needs the role editor, but viewer has the role viewer." in viewer.vote()
    assert "This needs the role" not in editor.vote()


def test_an_event_that_no_request_sent_runs_as_nobody(mixed: Path) -> None:
    with PlaygroundBlocks() as blocks:
        shown = gr.Textbox()
        shown.change(lambda: current_actor().name, None, shown)
    event = next(iter(blocks.fns.values()))
    answer = asyncio.run(blocks.process_api(event, [], SessionState(blocks)))
    assert answer["data"] == [NOBODY.name]
