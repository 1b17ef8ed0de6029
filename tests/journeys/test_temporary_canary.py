"""What is typed and sent stays in the home folder: the temporary folder of the system gets nothing."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.api_server import unused_port
from tests.browser.conftest import environment
from workbench.registry.database import migrate
from workbench.settings import Settings

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
CANARY = "canary-that-only-the-owner-may-read"
TOKEN = "a token with a good many characters"
MODULES = ("ui.api", "ui.serving.studio_server", "jobs.queue.worker", "jobs.queue.scheduler")
# Folders that libraries would make in the temporary folder of the system; here another user was the first.
TAKEN = ("gradio", f"expert-workbench-{os.getuid()}", "torchinductor_root", "matplotlib", "streamlit")


@dataclass(frozen=True)
class Machine:
    """Running servers, with what lies outside their home: the system's temporary folder and the folder of a person."""

    settings: Settings
    system: Path
    person: Path


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    system, person = tmp_path / "system", tmp_path / "person"
    for folder in (system, person):
        folder.mkdir()
    for name in TAKEN:
        (system / name).write_text("not yours")
    settings = Settings(home=tmp_path / "home", api_port=unused_port(), studio_port=unused_port(), token=TOKEN)
    migrate(settings)
    variables = environment(settings) | {"TMPDIR": str(system), "HOME": str(person)}
    variables = {name: value for name, value in variables.items() if not name.startswith(("XDG_", "GRADIO_"))}
    started = [subprocess.Popen([sys.executable, "-P", "-m", one], env=variables, cwd=tmp_path) for one in MODULES]
    try:
        wait_for(settings)
        yield Machine(settings, system, person)
        assert [one.poll() for one in started] == [None] * len(started), "a server ended by itself"
    finally:
        for one in started:
            one.terminate()
        for one in started:
            one.wait(60)


def wait_for(settings: Settings) -> None:
    """Waits until both servers answer."""
    deadline = time.monotonic() + 120
    for port in (settings.api_port, settings.studio_port):
        while True:
            assert time.monotonic() < deadline, "the servers did not come up"
            with suppress(httpx.TransportError):
                httpx.get(f"http://127.0.0.1:{port}/login", trust_env=False)
                break
            time.sleep(0.2)


def type_and_send(settings: Settings) -> None:
    """The canary as a prompt of each event, in an address, as a file, and in a request that is refused."""
    headers = {"authorization": f"Bearer {TOKEN}"}
    base = f"http://127.0.0.1:{settings.api_port}"
    with httpx.Client(base_url=base, headers=headers, trust_env=False, timeout=60.0) as client:
        config = client.get("/play/config").raise_for_status().json()
        session = secrets.token_hex(8)
        kinds = {one["id"]: (one["type"], one["props"].get("value")) for one in config["components"]}
        for event in (one for one in config["dependencies"] if one["backend_fn"]):
            values = [CANARY if kind == "textbox" else value for kind, value in map(kinds.get, event["inputs"])]
            body = {"data": values, "fn_index": event["id"], "session_hash": session}
            client.post("/play/gradio_api/queue/join", json=body).raise_for_status()
            with client.stream("GET", f"/play/gradio_api/queue/data?session_hash={session}") as stream:
                assert any("process_completed" in line for line in stream.iter_lines())
        client.get("/play/gradio_api/deep_link", params={"session_hash": session})
        client.get("/play/", params={"prompt": CANARY, "x": CANARY})
        client.post("/play/gradio_api/upload", files={"files": (f"{CANARY}.txt", CANARY.encode() * 10)})
        client.post("/v1/completions", json={"model": CANARY, "prompt": CANARY})


def test_nothing_is_left_where_other_users_look(machine: Machine) -> None:
    type_and_send(machine.settings)
    assert sorted(one.name for one in machine.system.iterdir()) == sorted(TAKEN)
    outside = [path for path in machine.person.rglob("*") if path.is_file()]
    assert [path for path in outside if CANARY.encode() in path.read_bytes()] == []
    temporary = machine.settings.root / "tmp"
    assert {path.stat().st_mode & 0o077 for path in (temporary, *temporary.iterdir())} == {0}
