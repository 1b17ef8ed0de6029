"""What the tests of the toys share: their packages, as if pip had installed them, and a home to use them in."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from engine import plugins
from engine.errors import Problem
from engine.methods.registry import methods
from engine.mixing.gate_type import gate_types
from jobs.queue.submit import run_now
from ui.pages.catalog import all_pages
from ui.reports.report_type import report_types
from ui.widgets.background import BACKGROUND_THREAD
from workbench.answers.cards import JobCard
from workbench.job_records import jobs
from workbench.kinds.kind import known_kinds
from workbench.questions.question import known_questions
from workbench.registry.database import reading
from workbench.settings import Settings

ROOT = Path(__file__).parents[1]
PLUGINS = (methods, gate_types, all_pages, report_types, known_kinds, known_questions)
SHAPE = {"num_layers": 2, "width": 32, "num_heads": 2, "ffn_width": 64, "max_positions": 128}
WORDS = {
    "court": "the court held that this statute applies and the appeal is dismissed ",
    "sea": "waves broke over the grey rocks as gulls cried above the harbour ",
}


@contextmanager
def plugged_in(folder: Path) -> Iterator[None]:
    """A folder's packages are installed, for this process and those that it starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setenv("PYTHONPATH", path_with(folder))
        forget(folder)
        yield
    forget(folder)


def uninstall(folder: Path) -> None:
    """A folder's packages are gone from this process, until the end of the `plugged_in` around it."""
    sys.path[:] = [path for path in sys.path if path != str(folder)]  # in place: `plugged_in` restores this list
    forget(folder)


def path_with(folder: Path) -> str:
    """PYTHONPATH with a folder before all others."""
    return os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])


def forget(folder: Path) -> None:
    """Plug-ins are searched again, and the modules of a folder are imported again, but for those of tests.

    What a page still fetches is waited for, and the registries are cleared last: a thread that asked one of them in
    between would fill it with the packages of before.
    """
    for thread in threading.enumerate():
        if thread.name == BACKGROUND_THREAD:
            thread.join(60)
    plugins._entry_points.cache_clear()
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if file.startswith(f"{folder}/") and not name.startswith("tests."):
            del sys.modules[name]
    for registry in PLUGINS:
        registry.cache_clear()


def run_tests_with(folder: Path, *tests: str) -> str:
    """The output of these tests in a process that has the folder's package installed; they must pass."""
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path_with(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, f"{ended.stdout[-8000:]}\n{ended.stderr[-2000:]}"
    return ended.stdout


def do(spec: dict[str, Any], settings: Settings | None = None) -> JobCard:
    """Runs a job in this process to its end; its card."""
    job_id, events = run_now(spec, settings=settings)
    with suppress(Problem):  # the card says why
        for _ in events:
            pass
    with reading(settings) as session:
        card = jobs.get_job(session, job_id)
    assert card.state == "done", (card.error, card.next_step)
    return card
