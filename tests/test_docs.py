"""Documentation is run, not believed."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from workbench.settings import Settings

ROOT = Path(__file__).parents[1]
RUN_IN_ORDER = [  # one registry for all
    "first_expert.md",
    "how_to/cheaper_experts.md",
    "how_to/mode.md",
    "how_to/switch_parts.md",
    "how_to/explain_experts.md",
    "how_to/forget_and_remove.md",
    "how_to/find_clusters.md",
    "how_to/classify.md",
]
DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def commands(path: Path) -> list[str]:
    """Lines that begin with `$ workbench` in the console blocks of a document."""
    blocks = re.findall(r"```console\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ workbench")]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], None]:
    """Somebody who types every command of a document, in one folder for all of them."""
    folder = tmp_path_factory.mktemp("reader")
    shutil.copytree(ROOT / "docs" / "how_to" / "tasks", folder / "tasks")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WORKBENCH_")}
    # A port nobody listens on: `say` must not ask an API server that happens to run here.
    clean |= {"WORKBENCH_API_PORT": "9", "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}

    def follow(document: Path) -> None:
        for line in commands(document):
            ended = subprocess.run(
                shlex.split(line), cwd=folder, env=clean, capture_output=True, text=True, timeout=240, check=False
            )
            assert ended.returncode == 0, f"{line}\n{ended.stdout}\n{ended.stderr}"
        assert (folder / ".workbench" / "registry.db").is_file()

    return follow


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", RUN_IN_ORDER)
def test_a_tutorial_runs_as_it_is_written(reader: Callable[[Path], None], name: str) -> None:
    document = ROOT / "docs" / name
    assert len(commands(document)) > 4
    reader(document)


@pytest.mark.parametrize("path", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_files_that_a_document_names_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) if "://" not in link]
    files = re.findall(r"`((?:engine|workbench|jobs|ui|tests|docs|benchmarks)/[\w/.]+)`", text)
    missing = [link for link in links if not (path.parent / link).exists()]
    missing += [file for file in files if not (ROOT / file).exists()]
    assert not missing


def test_every_setting_is_in_the_reference_with_its_sentence() -> None:
    text = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    for name, field in Settings.model_fields.items():
        default = field.get_default()
        shown = default.get_secret_value() if name == "token" else default
        shown = "empty" if shown in ("", None) else shown
        assert f"| `WORKBENCH_{name.upper()}` | {shown} | {field.description} |" in text


def test_the_readme_counts_the_laws() -> None:
    from engine.selfcheck.laws import LAWS

    assert f"{len(LAWS)} laws of mixing" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_law_of_the_self_check_is_in_the_methods_with_its_tolerance() -> None:
    from engine.selfcheck.laws import LAWS

    text = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    for law in LAWS:
        assert f"| {law.number} | {law.sentence} | {law.tolerance} |" in text
