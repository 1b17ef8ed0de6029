"""The recipes of docs/how_to/extend.md are run, each in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "how_to" / "extend.md").read_text(encoding="utf-8")
TESTS = ROOT / "tests"
TOY_GATE = TESTS / "toy_gate"


def blocks(title: str, language: str = "python") -> list[str]:
    """The code of a section."""
    section = re.split(rf"^## {title}$", PAGE, flags=re.MULTILINE)[1].split("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)


def run(code: str, folder: Path) -> None:
    """Runs code where this folder is on the import path, too."""
    path = os.pathsep.join([str(folder), str(ROOT)])
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path, "WORKBENCH_HOME": str(folder / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr


def install(folder: Path, module: str, code: str, group: str, entry_point: str) -> None:
    """A module with an entry point, as pip installs them."""
    (folder / f"{module}.py").write_text(code, encoding="utf-8")
    distribution = folder / f"{module}-1.dist-info"
    distribution.mkdir()
    (distribution / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1\n")
    (distribution / "entry_points.txt").write_text(f"[{group}]\n{entry_point}\n")


def test_the_gate_of_the_page_is_the_one_that_its_own_tests_run() -> None:
    [code] = blocks("A gate")
    assert code == (TOY_GATE / "toy_gate" / "gate.py").read_text(encoding="utf-8")
    [project] = blocks("A gate", "toml")
    [(group, offered)] = tomllib.loads(project)["project"]["entry-points"].items()
    installed = (TOY_GATE / "toy_gate-1.dist-info" / "entry_points.txt").read_text(encoding="utf-8")
    assert installed.splitlines() == [f"[{group}]", *(f"{name} = {place}" for name, place in offered.items())]


def test_the_method_the_kind_and_the_question_of_the_page_are_those_that_their_own_tests_run() -> None:
    for title, folder, names in (
        ("A method", TESTS / "toy_method" / "site" / "toy_method", ("descriptor", "placement")),
        ("A kind of job", TESTS / "toy_kind" / "toy_kind", ("kind", "runner", "screen")),
        ("A question", TESTS / "toy_question", ("toy_question",)),
    ):
        assert blocks(title) == [(folder / f"{name}.py").read_text(encoding="utf-8") for name in names]
        [offered] = blocks(title, "toml")
        [installed] = [
            *folder.glob("*.dist-info/entry_points.txt"),
            *folder.parent.glob("*.dist-info/entry_points.txt"),
        ]
        assert offered.replace(' = "', " = ").replace('"\n', "\n").replace('project.entry-points."', "").replace(
            '"]', "]"
        ) == installed.read_text(encoding="utf-8")


def test_the_clusterer_of_the_page_finds_clusters(tmp_path: Path) -> None:
    clusterer, use = blocks("A clusterer")
    group, entry_point = "expert_workbench.clusterers", "sorted = toy_clusterer:CLUSTERER"
    assert f"`{group}`" in PAGE
    assert entry_point.replace("toy", '"toy') + '"' in PAGE
    install(tmp_path, "toy_clusterer", clusterer, group, entry_point)
    run(use, tmp_path)
    run(
        "from workbench.kinds.clusters.find_clusters import FindClusters\n"
        "FindClusters(name='n', domains=['d'], method='sorted')",
        tmp_path,
    )


def test_the_model_family_of_the_page_has_all_its_maps(tmp_path: Path) -> None:
    [code] = blocks("A model family")
    run(code, tmp_path)


def test_the_check_of_a_broker_gets_its_hint_back(tmp_path: Path) -> None:
    [code] = blocks("A broker")
    run(code, tmp_path)
