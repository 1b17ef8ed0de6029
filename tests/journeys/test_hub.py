"""Models and adapters of the hub, read by its own client from a hub on this machine: pinned, or refused in words."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch

from tests.journeys.conftest import Do, done
from tests.journeys.test_export import our_logits
from tests.journeys.test_import_expert import fine_tune, make_adapter
from ui.cli.app import main
from workbench.registry import experts, seeds
from workbench.registry.database import reading
from workbench.store.storage import get_storage

FIRST, SECOND = "1" * 40, "2" * 40
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # of peft


class Hub:
    """What the server answers with: the files of each commit of each repository, and refusals by repository."""

    def __init__(self) -> None:
        self.commits: dict[str, dict[str, dict[str, bytes]]] = {}
        self.refused: dict[str, tuple[int, str]] = {}
        self.served: list[str] = []  # the files that were downloaded

    def put(self, repository: str, commit: str, folder: Path) -> None:
        """Adds the files of a folder; the greatest commit is the branch `main`, the smallest the tag `v1`."""
        files = {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
        self.commits.setdefault(repository, {})[commit] = files

    def find(self, repository: str, revision: str) -> tuple[str, dict[str, bytes]] | None:
        commits = self.commits[repository]
        commit = {"main": max(commits), "v1": min(commits)}.get(revision, revision)
        return (commit, commits[commit]) if commit in commits else None


def handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    """The routes of the hub that its client needs to download a snapshot."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            parts = self.path.partition("?")[0].strip("/").split("/")
            is_api = parts[0] == "api"
            if len(parts) < (4 if is_api else 2):
                return self.refuse(404, "")
            owner, name, *rest = parts[2:] if is_api else parts
            repository = f"{owner}/{name}"
            if repository in hub.refused or repository not in hub.commits:
                status, code = hub.refused.get(repository, (404, "RepoNotFound"))
                return self.refuse(status, code)
            what, revision, *path = rest or ["revision", "main"]
            known = hub.find(repository, revision)
            if known is None:
                return self.refuse(404, "RevisionNotFound")
            commit, files = known
            if not is_api:
                return self.send_file(commit, files, "/".join(path))
            if what == "tree":
                return self.send_json(
                    [
                        {"type": "file", "path": path, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                        for path, content in files.items()
                    ]
                )
            siblings = [{"rfilename": path} for path in files]
            return self.send_json({"id": repository, "sha": commit, "siblings": siblings})

        def send_file(self, commit: str, files: dict[str, bytes], path: str) -> None:
            if path not in files:
                return self.refuse(404, "EntryNotFound")
            if self.command == "GET":
                hub.served.append(path)
            etag = f'"{hashlib.sha1(files[path]).hexdigest()}"'
            return self.send(200, files[path], {"ETag": etag, "X-Repo-Commit": commit})

        def send_json(self, value: Any) -> None:
            self.send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

        def refuse(self, status: int, code: str) -> None:
            self.send(status, b"", {"X-Error-Code": code})

        def send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

    return Handler


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub on this machine that the client asks instead of huggingface.co."""
    result = Hub()
    with ThreadingHTTPServer(("127.0.0.1", 0), handler(result)) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        point_client(monkeypatch, f"http://127.0.0.1:{server.server_port}", tmp_path / "cache")
        yield result
        server.shutdown()
        thread.join()


def point_client(monkeypatch: pytest.MonkeyPatch, endpoint: str, cache: Path) -> None:
    """Sets what the client reads from HF_ENDPOINT and HF_HUB_CACHE when it is imported."""
    constants = "huggingface_hub.constants."
    monkeypatch.setattr(constants + "ENDPOINT", endpoint)
    monkeypatch.setattr(
        constants + "HUGGINGFACE_CO_URL_TEMPLATE", endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setattr(constants + "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants + "HF_HUB_OFFLINE", False)


def seed_files(name: str = "seed") -> Path:
    with reading() as session:
        return get_storage().path(seeds.seed_row(session, name).artifact_id)


def source_of(name: str) -> str:
    with reading() as session:
        return seeds.get_seed(session, name).source


def test_a_seed_keeps_the_commit_that_was_downloaded(
    trained: Do, hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fine_tune(tmp_path / "newer", ".mlp.")
    (tmp_path / "newer/pytorch_model.bin").write_bytes(b"pickle")
    (tmp_path / "newer/modeling.py").write_text("evil")
    hub.put("one/two", FIRST, seed_files())
    hub.put("one/two", SECOND, tmp_path / "newer")
    assert main(["seed", "add", "newest", "--hub", "one/two", "--here"]) == 0
    assert main(["seed", "add", "tagged", "--hub", "one/two@v1", "--here"]) == 0
    done(trained({"kind": "make-seed", "name": "pinned", "source": "hub", "location": f"one/two@{FIRST}"}))
    assert [source_of(name) for name in ("newest", "tagged", "pinned")] == [
        f"hub:one/two@{SECOND}",
        f"hub:one/two@{FIRST}",
        f"hub:one/two@{FIRST}",
    ]
    assert main(["seed", "show", "tagged"]) == 0
    assert FIRST in capsys.readouterr().out
    assert not {"pytorch_model.bin", "modeling.py"} & {*hub.served}


def test_an_expert_from_the_hub_is_pinned_and_exported_with_the_seeds_commit(
    trained: Do, hub: Hub, tmp_path: Path
) -> None:
    expected = make_adapter(tmp_path / "adapter")
    hub.put("one/base", SECOND, seed_files())
    hub.put("one/court", FIRST, tmp_path / "adapter")
    done(trained({"kind": "make-seed", "name": "base", "source": "hub", "location": "one/base"}))
    take = {"kind": "import-expert", "source": "hub:one/court", "seed_model": "base"}
    assert done(trained(take)).result["expert"] == "court"
    with reading() as session:
        assert experts.get_expert(session, "court").config["imported"]["source"] == f"hub:one/court@{FIRST}"
    assert torch.equal(our_logits("court"), expected)
    done(trained({"kind": "export-expert", "expert": "court", "folder": str(tmp_path / "out"), "format": "peft"}))
    config = json.loads((tmp_path / "out/adapter_config.json").read_text())
    assert (config["base_model_name_or_path"], config["revision"]) == ("one/base", SECOND)
    (tmp_path / "out/adapter_config.json").write_text(json.dumps({**config, "revision": FIRST}))
    card = trained({**take, "source": str(tmp_path / "out"), "name": "other"})
    assert f"belongs to commit {FIRST} of one/base" in card.error


def test_what_cannot_be_downloaded_has_a_sentence_of_its_own(
    trained: Do, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pickles").mkdir()
    (tmp_path / "pickles/config.json").write_bytes((seed_files() / "config.json").read_bytes())
    (tmp_path / "pickles/pytorch_model.bin").write_bytes(b"pickle")
    hub.put("one/two", FIRST, seed_files())
    hub.put("one/pickles", FIRST, tmp_path / "pickles")
    hub.refused["meta/closed"] = (403, "GatedRepo")

    def error_of(location: str) -> str:
        card = trained({"kind": "make-seed", "name": "new", "source": "hub", "location": location})
        assert card.state == "failed", location
        return f"{card.error} {card.next_step}"

    assert "“meta/closed” is gated" in error_of("meta/closed")
    assert "There is no model “one/nothing” on the hub" in error_of("one/nothing")
    assert "has no revision “v9”" in error_of("one/two@v9")
    assert "pytorch_model.bin, a pickle, which is never opened" in error_of("one/pickles")
    assert "pytorch_model.bin" not in hub.served
    point_client(monkeypatch, "http://127.0.0.1:9", tmp_path / "another cache")
    assert "the hub cannot be reached" in error_of("one/two")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert "the hub cannot be reached" in error_of("one/two")
