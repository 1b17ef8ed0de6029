"""A fresh home for whoever asks for one; nothing of the person's own environment reaches a test."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from sqlalchemy.orm import Session

from engine.inference import generate
from engine.inference.sampling import make_generator
from tests.toy_packages import SHAPE, WORDS, do, plugged_in
from ui.generation import model_host
from workbench.registry import database
from workbench.settings import Settings, get_settings

# By default an example fails that takes longer than 200 ms, which says more of the machine than of the code.
hypothesis.settings.register_profile("tests", deadline=None)
hypothesis.settings.load_profile("tests")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and getattr(config.option, "numprocesses", None):
        config.pluginmanager.register(_ImmediateFailures(reporter))


class _ImmediateFailures:
    """Prints each failure when it happens, so that a run that is cut short says what failed."""

    def __init__(self, reporter: Any) -> None:
        self._reporter = reporter

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._reporter.write_line(f"\n{report.nodeid} failed ({report.when}):\n{report.longreprtext[-4000:]}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest file first: at the end one process would run it while the others have nothing left to do."""
    items.sort(key=lambda item: item.path.name != "test_benchmarks.py")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """No file of tests leaves a toy's package installed, which the tests of other files would find in their lists."""
    yield
    if nextitem is None or nextitem.path != item.path:
        assert _toys() == TOYS_AT_THE_START


def _toys() -> set[str]:
    return {path for path in sys.path if "/tests/toy_" in path}


TOYS_AT_THE_START = _toys()  # a toy's tests may run others in a process that has its package


@pytest.fixture(autouse=True, scope="session")
def _no_login() -> Iterator[None]:
    """Servers of tests require no token, but in the tests of access control, which leave this out."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORKBENCH_NO_AUTH", "1")
        yield


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in [name for name in os.environ if name.startswith("WORKBENCH_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("WORKBENCH_NO_AUTH", "1")
    monkeypatch.setenv("WORKBENCH_HOME", str(tmp_path / "no-home"))
    get_settings.cache_clear()
    yield
    get_settings.cache_clear()


@pytest.fixture(autouse=True)
def _same_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers without a seed are the same in every run: one of 260 would end at its first token otherwise."""
    seeds = itertools.count(1)
    monkeypatch.setattr(generate, "make_generator", lambda seed: make_generator(next(seeds) if seed is None else seed))
    monkeypatch.setattr(model_host, "new_seed", lambda: 1)


@pytest.fixture(scope="session")
def empty_registry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a registry with nothing in it, made once."""
    folder = tmp_path_factory.mktemp("registry")
    database.migrate(Settings(home=folder))
    database.close_engines()
    return folder / "registry.db"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_registry: Path) -> Iterator[Path]:
    """A home folder with an empty registry; settings and subprocesses find it through WORKBENCH_HOME."""
    folder = tmp_path / "home"
    folder.mkdir()
    shutil.copy(empty_registry, folder / "registry.db")
    monkeypatch.setenv("WORKBENCH_HOME", str(folder))
    get_settings.cache_clear()
    yield folder
    database.close_engines()


@pytest.fixture
def session(request: pytest.FixtureRequest) -> Iterator[Session]:
    """A transaction that writes, committed at the end of the test; no other can write meanwhile."""
    request.getfixturevalue("home")
    with database.transaction() as one:
        yield one


@pytest.fixture
def installed(request: pytest.FixtureRequest) -> Iterator[None]:
    """The package in the test's folder, installed for this process and those that it starts."""
    with plugged_in(request.path.parent):
        yield


@pytest.fixture(scope="session")
def seeded_home(tmp_path_factory: pytest.TempPathFactory, empty_registry: Path) -> Path:
    """A home with two domains and the model `seed`. Made once."""
    folder = tmp_path_factory.mktemp("seeded")
    shutil.copy(empty_registry, folder / "registry.db")
    settings = Settings(home=folder)
    for name, words in WORDS.items():
        (folder / name).mkdir()
        for number in range(40):
            (folder / name / f"{number}.txt").write_text(f"{number} {words * 8}", encoding="utf-8")
        do({"kind": "import-corpus", "name": name, "path": str(folder / name)}, settings)
    do({"kind": "make-seed", "name": "seed", "domains": list(WORDS), "vocab_size": 320, "shape": SHAPE}, settings)
    database.close_engines()
    return folder


@pytest.fixture
def seeded(home: Path, seeded_home: Path) -> Path:
    """A copy of that home."""
    return Path(shutil.copytree(seeded_home, home, dirs_exist_ok=True))
