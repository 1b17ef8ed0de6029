"""Packing a domain's tokens says what is done to which domain, and what of conversations cannot be learned."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiny_kind import job_spec
from world import RunningWorkbench

from engine.events import Note, Progress
from engine.text.chat.conversations import as_stored
from engine.text.corpus import Document
from engine.text.split import store_documents
from engine.text.tokenizer import load_tokenizer
from jobs.attempt.attempt import take
from jobs.attempt.work import Work
from jobs.kinds.shared import tokens
from jobs.queue import submit
from tests.engine.chat_shapes import chat_folder


@dataclass
class Domain:
    id: str = "1"
    name: str = "law"
    is_chat: bool = False
    folder: Path = field(default_factory=Path)

    def documents(self) -> Path:
        return self.folder


def test_packing_names_the_domain_and_what_is_done(
    servers: RunningWorkbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pack_domain(documents: Path, tokenizer: Any, folder: Path) -> Iterator[Progress]:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tokens.json").write_text("{}")
        yield Progress(3, 5, "documents", "train", is_first=True)

    monkeypatch.setattr(tokens, "pack_domain", pack_domain)
    claim = take(servers.settings, submit.submit(job_spec()), "me")
    assert claim is not None
    tokenizer: Any = SimpleNamespace(sha256="ab")
    domain: Any = Domain()
    events = list(tokens.pack(Work(claim, servers.settings), domain, tokenizer, tmp_path, 8))
    assert events == [Progress(3, 5, "documents", "tokenizing law (train)", is_first=True)]


def pack_talk(servers: RunningWorkbench, folder: Path, own_config: dict[str, str]) -> list[str]:
    """The notes of packing conversations for an expert whose own chat template ends an answer by the EOS token."""
    base, own = chat_folder(folder / "base"), folder / "own"
    own.mkdir()
    (own / "expert.json").write_text("{}")
    (own / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content + (eos_token or '') }}{% endfor %}")
    (own / "tokenizer_config.json").write_text(json.dumps(own_config))
    talk = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So."}]
    for _ in store_documents((Document("a", None, str(n), "", as_stored(talk)) for n in range(20)), folder / "text"):
        pass
    claim = take(servers.settings, submit.submit(job_spec()), "me")
    assert claim is not None
    domain: Any = Domain(is_chat=True, folder=folder / "text/0")
    events = tokens.pack(Work(claim, servers.settings), domain, load_tokenizer(base), own, 16)
    return [event.sentence for event in events if isinstance(event, Note)]


def test_an_expert_whose_template_names_no_token_learns_from_conversations(
    servers: RunningWorkbench, tmp_path: Path
) -> None:
    notes = pack_talk(servers, tmp_path, {})
    assert any("no token that ends an answer" in note for note in notes)


def test_an_answer_that_ends_by_an_experts_own_token_is_taught_to_end(
    servers: RunningWorkbench, tmp_path: Path
) -> None:
    notes = pack_talk(servers, tmp_path, {"eos_token": "<|im_start|>"})
    assert not any("no token that ends an answer" in note for note in notes)
