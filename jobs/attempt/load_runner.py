"""Which function does the work of each kind of job. Imported when a job runs: some import torch."""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

from engine.plugins import BadPlugin
from jobs.attempt.work import Runner
from workbench.kinds.catalog import kind_named
from workbench.kinds.kind import Kind


def load_runner(kind: str) -> Runner:
    """The generator function of a kind of job. Raises BadSpec for an unknown kind, BadPlugin where it has none."""
    path = runner_path(kind_named(kind))
    module, _, function = path.partition(":")
    try:
        return cast(Runner, getattr(import_module(module), function))
    except (ImportError, AttributeError) as error:
        raise BadPlugin(
            f"The runner {path} of the kind “{kind}” cannot be imported: {error}.", "Repair or uninstall its package."
        ) from error


def runner_path(kind: Kind[Any]) -> str:
    """`package.module:function`: what the kind names, or `run` in the module of `jobs.kinds` named as its spec's."""
    return kind.runner or kind.spec.__module__.replace("workbench.kinds", "jobs.kinds", 1) + ":run"
