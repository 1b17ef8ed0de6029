"""The command line in a process of its own that has torch and transformers loaded already.

Nearly all the time of a short command is the import of libraries. A server imports them once; each command is a fork of
it, with its own folder, environment and output, and ends like a process that was started.
"""

from __future__ import annotations

import multiprocessing
import os
import pkgutil
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType

import torch._dynamo
import transformers.models.llama.modeling_llama

import engine
import jobs
import ui.cli
import workbench
from ui.cli.app import main
from workbench.settings import get_settings

__all__ = ["run_forked", "torch", "transformers"]

for package in (engine, workbench, jobs, ui.cli):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if module.name.split(".")[-1] not in ("__main__", "tasks"):  # those read settings
            import_module(module.name)


def run_forked(line: str, folder: Path, environment: dict[str, str], timeout: float) -> tuple[int | None, str]:
    """The exit status of a command line (None if it did not end in `timeout` seconds) and what it printed."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    output = folder / "output.txt"
    output.touch()
    process = context.Process(target=_run, args=(line, folder, environment, output))
    with _empty_main():
        process.start()
    process.join(timeout)
    status = process.exitcode
    if status is None:
        process.kill()
        process.join()
    return status, output.read_text(encoding="utf-8")


@contextmanager
def _empty_main() -> Iterator[None]:
    """Spares the server and its forks this process's main module, which they would run again.

    A page that an earlier test has run in this process leaves its script there, and that script's file is gone.
    """
    main_module = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main_module


def _run(line: str, folder: Path, environment: dict[str, str], output: Path) -> None:
    with output.open("w", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    get_settings.cache_clear()
    sys.exit(main(shlex.split(line)[1:]))
