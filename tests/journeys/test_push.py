"""An expert is uploaded by the hub's own client: to a small server on loopback that answers as the hub does."""

from __future__ import annotations

import base64
import errno
import json
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard, constants
from transformers import AutoModelForCausalLM

from jobs.kinds.training import exports
from jobs.queue.submit import submit
from tests.journeys.conftest import Do, done
from tests.journeys.test_export import LORA, logits_of, our_logits
from ui.cli.app import main
from workbench.errors import BadSpecError
from workbench.registry import seeds
from workbench.registry.database import transaction

TOKEN, COMMIT = "hf_" + "a" * 34, "c0ffee" + "0" * 34
PUSH: dict[str, Any] = {"kind": "push-expert", "expert": "small/court", "repository": "you/law"}


@dataclass
class Hub:
    """What was sent to the server."""

    refuses: int = 0  # a status that it answers a commit with
    created: list[dict[str, Any]] = field(default_factory=list)
    tokens: set[str | None] = field(default_factory=set)
    files: dict[str, bytes] = field(default_factory=dict)
    endpoint: str = ""


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None: ...

        def answer(self, content: Any, status: int = 200) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            pieces = []
            while size := int(self.rfile.readline(), 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(pieces)

        def do_POST(self) -> None:
            sent = self.body()
            if self.path == "/api/validate-yaml":
                return self.answer({"errors": [], "warnings": []})
            hub.tokens.add(self.headers.get("Authorization"))
            if self.path == "/api/repos/create":
                hub.created.append(json.loads(sent))
                return self.answer({"url": f"{hub.endpoint}/you/law", "id": "1", "name": "you/law"})
            if self.path.endswith("/preupload/main"):
                files = json.loads(sent)["files"]
                modes = [{"path": file["path"], "uploadMode": "regular", "shouldIgnore": False} for file in files]
                return self.answer({"files": modes})
            if self.path.endswith("/commit/main"):
                if hub.refuses:
                    return self.answer({"error": "You may not write here"}, hub.refuses)
                for line in sent.splitlines():
                    one = json.loads(line)
                    if one["key"] == "file":
                        hub.files[one["value"]["path"]] = base64.b64decode(one["value"]["content"])
                url = f"{hub.endpoint}/you/law/commit/{COMMIT}"
                return self.answer({"success": True, "commitUrl": url, "commitOid": COMMIT})
            return self.answer({"error": f"unknown: {self.path}"}, 404)

        def do_GET(self) -> None:
            self.answer({"error": f"unknown: {self.path}"}, 404)

    return Handler


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(constants, "ENDPOINT", hub.endpoint)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield hub
    server.shutdown()
    server.server_close()
    thread.join()


def _is_private(created: dict[str, Any]) -> bool:
    """Newer clients send a visibility, older ones a flag."""
    return bool(created.get("private")) or created.get("visibility") == "private"


def files_in(folder: Path) -> Iterator[bytes]:
    return (file.read_bytes() for file in folder.rglob("*") if file.is_file())


@pytest.mark.usefixtures("trained")
def test_what_is_on_the_hub_is_the_expert_with_its_card(
    hub: Hub, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["expert", "push", "small/court", "you/law", "--here"]) == 0
    printed = capsys.readouterr().out
    assert f"{hub.endpoint}/you/law" in printed
    assert COMMIT in printed
    assert [(one["organization"], one["name"], _is_private(one)) for one in hub.created] == [("you", "law", True)]
    for name, content in hub.files.items():
        (tmp_path / "copy").mkdir(exist_ok=True)
        (tmp_path / "copy" / name).write_bytes(content)
    copy = AutoModelForCausalLM.from_pretrained(tmp_path / "copy", dtype=torch.float32)
    assert torch.equal(logits_of(copy), our_logits("small/court"))
    assert ModelCard(hub.files["README.md"].decode()).data.library_name == "transformers"
    assert hub.tokens == {f"Bearer {TOKEN}"}
    assert not any(TOKEN.encode() in content for content in files_in(home))  # neither stored nor logged
    assert not any(str(home).encode() in content for content in hub.files.values())


def test_a_repository_is_public_on_request(trained: Do, hub: Hub) -> None:
    done(trained({**PUSH, "public": True}))
    assert [_is_private(one) for one in hub.created] == [False]


def test_an_adapter_names_its_seed_on_the_hub(trained: Do, hub: Hub) -> None:
    done(trained(LORA))
    job_spec = {**PUSH, "expert": "thin/court", "format": "peft"}
    with pytest.raises(BadSpecError, match="is not from the hub"):
        submit(job_spec)
    with transaction() as session:
        seeds.seed_row(session, "seed").source = "hub:some/model"
    done(trained(job_spec))
    assert json.loads(hub.files["adapter_config.json"])["base_model_name_or_path"] == "some/model"
    data = ModelCard(hub.files["README.md"].decode()).data
    assert (data.base_model, data.base_model_relation) == (["some/model"], "adapter")


def test_without_a_token_nothing_is_sent(
    trained: Do, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    card = trained(PUSH)
    assert (card.state, card.error) == (
        "failed",
        "Nothing can be uploaded to the Hugging Face hub without a token.",
    )
    assert "HF_TOKEN" in card.next_step
    assert hub.created == []


@pytest.mark.usefixtures("hub")
def test_a_full_disk_in_the_middle_leaves_no_half_of_an_upload(
    trained: Do, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(_: Any, folder: Path) -> None:
        assert (folder / "model.safetensors").exists()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(exports, "write_card", breaks)
    card = trained(PUSH)
    assert (card.state, "is full" in card.error) == ("paused", True)
    assert not list((home / "jobs" / card.id).rglob("*.safetensors"))


def test_a_refusal_and_a_dead_network_are_sentences(trained: Do, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.refuses = 403
    card = trained(PUSH)
    assert (card.state, hub.files) == ("failed", {})
    assert card.error.startswith("The Hugging Face hub refused the upload to “you/law” (403): ")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{free.getsockname()[1]}")
        card = trained(PUSH)
    assert card.state == "failed"
    assert card.error.startswith("The Hugging Face hub cannot be reached: ")
    assert card.next_step == "Check the network, then retry the job."


@pytest.mark.parametrize("name", ["../../etc", "a b", "a/b/c", "https://e.example/x", ""])
def test_a_repository_has_a_name(trained: Do, name: str) -> None:
    with pytest.raises(BadSpecError, match="not a repository name"):
        submit({**PUSH, "repository": name})
