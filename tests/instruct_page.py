"""docs/how_to/instruct.md: its commands, and what its programs must find; the tests walk it with two seed models."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.journeys.test_export import logits_of, our_logits
from tests.test_docs import ROOT, commands
from workbench.registry import experts
from workbench.registry.database import reading
from workbench.settings import get_settings
from workbench.store.storage import get_storage

PAGE = ROOT / "docs" / "how_to" / "instruct.md"
TEXT = PAGE.read_text(encoding="utf-8")
COMMANDS = commands(PAGE)
CHAT, RELOAD = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
SECOND = [line.partition(" ")[2] for line in TEXT.splitlines() if line.startswith("WORKBENCH_HOME=second ")]
MEMBERS = ["duo/licences", "duo/python", "seed:smol", "tutor/oven-chat", "tutor/sea-chat"]


def use_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This process reads the workbench in a folder from now on."""
    monkeypatch.setenv("WORKBENCH_HOME", str(home))
    get_settings.cache_clear()
    return home


def require_chat(url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """What the page's client is answered by the API at this address, with the weight of each expert."""
    assert "http://127.0.0.1:8000/v1" in CHAT
    monkeypatch.setenv("WORKBENCH_TOKEN", "none")
    capsys.readouterr()
    exec(CHAT.replace("http://127.0.0.1:8000/v1", url), {})
    monkeypatch.delenv("WORKBENCH_TOKEN")
    answer, weights = capsys.readouterr().out.rstrip().rsplit("\n", 1)
    by_expert = ast.literal_eval(weights)
    assert sorted(by_expert) == MEMBERS
    assert sum(by_expert.values()) == pytest.approx(1, abs=1e-5)
    return answer.strip()


def require_same_models(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the page loads with peft and transformers computes the logits of the workbench in use."""
    namespace: dict[str, Any] = {}
    with monkeypatch.context() as patch:
        patch.chdir(folder)
        exec(RELOAD, namespace)
    assert torch.equal(logits_of(namespace["adapted"]), our_logits("tutor/sea-chat"))
    # Merged, it sums in another order.
    torch.testing.assert_close(logits_of(namespace["model"]), our_logits("duo/python"), atol=1e-3, rtol=1e-3)


def hashes_of(expert: str) -> tuple[str, str]:
    """The hashes of an expert's artifact and of its base in the workbench in use, as its files have them."""
    with reading() as session:
        row, storage = experts.expert_row(session, expert), get_storage()
        return storage.kept(row.artifact).check(), storage.kept(row.base).check()


def environment_of(home: Path) -> dict[str, str]:
    """The environment of a command with this home. No server listens at this port."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WORKBENCH_")}
    return clean | {"WORKBENCH_HOME": str(home), "WORKBENCH_API_PORT": "9"}
