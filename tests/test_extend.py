"""The recipes of docs/how_to/extend.md are run, each in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from configparser import ConfigParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "how_to" / "extend.md").read_text(encoding="utf-8")
TESTS = ROOT / "tests"
PACKAGES = ("engine", "workbench", "jobs", "ui")


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


@pytest.mark.parametrize(
    ("title", "package", "modules"),
    [
        ("A gate", "toy_gate/toy_gate", ("gate",)),
        ("A method", "toy_method/toy_method", ("descriptor", "placement")),
        ("A method with a model of its own", "toy_method_with_its_own_model/toy_heads", ("descriptor", "model")),
        ("A kind of job", "toy_kind/toy_kind", ("kind", "runner", "form")),
        ("A question", "toy_question", ("toy_question",)),
        ("A sort of report", "toy_report/toy_report", ("report",)),
        ("A page and a command", "toy_page/toy_page", ("page", "word_counts", "command")),
    ],
)
def test_the_plugin_of_the_page_is_the_one_that_its_own_tests_run(
    title: str, package: str, modules: tuple[str, ...]
) -> None:
    folder = TESTS / package
    assert blocks(title) == [(folder / f"{name}.py").read_text(encoding="utf-8") for name in modules]
    [offered] = blocks(title, "toml")
    [path] = [path for parent in (folder, folder.parent) for path in parent.glob("*.dist-info/entry_points.txt")]
    installed = ConfigParser()
    installed.read(path, encoding="utf-8")
    groups = tomllib.loads(offered)["project"]["entry-points"]
    assert groups == {group: dict(installed[group]) for group in installed.sections()}


def test_every_hook_has_a_section_of_the_page() -> None:
    code = "".join(path.read_text(encoding="utf-8") for name in PACKAGES for path in (ROOT / name).rglob("*.py"))
    table = re.findall(r"^\| \[[^]]+\]\(#([a-z-]+)\).* \| `(expert_workbench\.\w+)` \|", PAGE, re.MULTILINE)
    assert {group for _, group in table} == set(re.findall(r"expert_workbench\.\w+", code))
    titles = {title.lower().replace(" ", "-") for title in re.findall(r"^## (.+)$", PAGE, re.MULTILINE)}
    assert {title for title, _ in table} <= titles


def test_the_clusterer_of_the_page_finds_clusters(tmp_path: Path) -> None:
    clusterer, use = blocks("A clusterer")
    group, entry_point = "expert_workbench.clusterers", "sorted = toy_clusterer:CLUSTERER"
    assert f"`{group}`" in PAGE
    assert entry_point.replace("toy", '"toy') + '"' in PAGE
    install(tmp_path, "toy_clusterer", clusterer, group, entry_point)
    run(use, tmp_path)
    run(
        "from workbench.kinds.clusters import FindClusters\nFindClusters(name='n', domains=['d'], method='sorted')",
        tmp_path,
    )


def test_the_tracker_of_the_page_writes_a_curve(tmp_path: Path) -> None:
    [tracker] = blocks("A tracker")
    assert '`lines = "toy_tracker:TRACKER"`' in PAGE
    install(tmp_path, "toy_tracker", tracker, "expert_workbench.trackers", "lines = toy_tracker:TRACKER")
    use = """
from pathlib import Path
from jobs.trackers.tracker import Run, known_trackers
tracker = known_trackers()["lines"].make()
tracker.begin(Run("id", "a job", {}, Path(".")))
tracker.log(1, {"loss": 2.0})
tracker.end("done")
"""
    run(use, tmp_path)
    assert (tmp_path / "curve.txt").read_text(encoding="utf-8") == "1 {'loss': 2.0}\ndone\n"


def test_the_model_family_of_the_page_has_all_its_maps(tmp_path: Path) -> None:
    [code] = blocks("A model family")
    run(code, tmp_path)


def test_the_check_of_a_broker_gets_its_hint_back(tmp_path: Path) -> None:
    [code] = blocks("A broker")
    run(code, tmp_path)
