"""What a training's bits depend on, recorded in the job's result, so that a replay knows whether they can be equal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from engine.environment import Environment, current_environment
from jobs.attempt.work import Work
from workbench.registry.reproducible import describe_environment


def environment_of(work: Work) -> dict[str, Any]:
    """The environment of this attempt, which makes the last steps."""
    return asdict(current_environment(work.settings.device, work.settings.processes))


def recorded_environment(result: Mapping[str, Any]) -> Environment | None:
    """The environment in a job's result; None for a training of an earlier version."""
    stored = result.get("environment")
    return Environment(**stored) if stored else None


def report_reproducible_from(work: Work) -> str:
    """What the numbers of a report are reproducible from, in words."""
    return f"The spec of its job, the same experts and text, {describe_environment(environment_of(work))}."
