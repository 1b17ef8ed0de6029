"""Which function does the work of each kind of job. Imported when a job runs: some import torch."""

from __future__ import annotations

from typing import Any, cast

from engine.plugins import load_object
from jobs.attempt.work import Runner
from workbench.kinds.catalog import kind_named
from workbench.kinds.kind import Kind


def load_runner(kind: str) -> Runner:
    """The generator function of a kind of job. Raises BadSpec for an unknown kind, BadPlugin where it has none."""
    return cast(Runner, load_object(runner_path(kind_named(kind))))


def runner_path(kind: Kind[Any]) -> str:
    """`package.module:function`: what the kind names, or `run` in the module of `jobs.kinds` named as its spec's."""
    return kind.runner or kind.spec.__module__.replace("workbench.kinds", "jobs.kinds", 1) + ":run"
