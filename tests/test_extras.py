"""The engine needs no front end, and a front end that is not installed is one sentence."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from engine.plugins import LIBRARIES, MissingExtraError, require_extras
from ui.api.__main__ import main as serve_api
from ui.cli.app import main as run_command
from ui.cli.start import main as start
from ui.serving.studio_server import main as serve_studio

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OF_THE_ENGINE_S_LIBRARIES = {"typer", "rich", "httpx"}  # transformers and huggingface_hub bring them


@pytest.mark.parametrize("extra", LIBRARIES)
def test_the_libraries_of_an_extra_are_those_of_the_package(extra: str) -> None:
    own = canonicalize_name(PROJECT["name"])
    required = {canonicalize_name(Requirement(line).name) for line in PROJECT["optional-dependencies"][extra]}
    distributions = packages_distributions()
    assert {canonicalize_name(distributions[name][0]) for name in LIBRARIES[extra]} == required - {own}
    assert (own in required) == (extra != "jobs")


def test_the_engine_is_imported_without_any_front_end() -> None:
    absent = {name for names in LIBRARIES.values() for name in names} | {"datasets", "redis", "psycopg"}
    script = f"""
import importlib, pkgutil, sys
sys.modules.update(dict.fromkeys({sorted(absent - OF_THE_ENGINE_S_LIBRARIES)}))
import engine
names = [one.name for one in pkgutil.walk_packages(engine.__path__, "engine.")]
for name in names:
    importlib.import_module(name)
print(len(names), sorted(set(sys.modules) & {{"workbench", "jobs", "ui"}}))
"""
    ended = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    count, others = ended.stdout.split(" ", 1)
    assert int(count) > 150
    assert others.strip() == "[]"


@pytest.mark.parametrize(
    ("serve", "library", "extra"),
    [
        (start, "sqlalchemy", "jobs"),
        (serve_api, "uvicorn", "api"),
        (serve_api, "sqlalchemy", "api"),
        (serve_studio, "streamlit", "studio"),
        (lambda: run_command(["up", "--no-browser"]), "gradio", "api"),
        (lambda: run_command(["up", "--no-browser"]), "streamlit", "studio"),
    ],
)
def test_a_front_end_that_is_not_installed_is_one_sentence(
    serve: Callable[[], int],
    library: str,
    extra: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, library, None)  # as if it were not installed

    assert serve() == 2

    message = capsys.readouterr().err
    assert f"not installed: {library}." in message
    assert f"Install it with: pip install 'expert-workbench[{extra}]'" in message
    assert "Traceback" not in message


def test_what_is_installed_is_not_missing() -> None:
    require_extras(*LIBRARIES)


def test_all_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("celery", "fastapi", "gradio"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match="The API needs what is not installed: celery, fastapi, gradio"):
        require_extras("api")
