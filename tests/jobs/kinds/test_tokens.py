"""The progress of packing a domain's tokens says what is done to which domain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiny_kind import job_spec
from world import RunningWorkbench

from engine.events import Progress
from jobs.attempt.attempt import take
from jobs.attempt.work import Work
from jobs.kinds.shared import tokens
from jobs.queue import submit


@dataclass
class Domain:
    id: str = "1"
    name: str = "law"
    is_chat: bool = False

    def documents(self) -> Path:
        return Path()


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
