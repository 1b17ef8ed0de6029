"""The processes of the job that is forecast: how many there are."""

from __future__ import annotations

from typing import Any

from workbench.job_records.preconditions import kind_of
from workbench.settings import Settings


def with_processes(spec: Any, settings: Settings) -> Any:
    """The job as it will run: it asks for as many GPUs as WORKBENCH_PROCESSES gives it processes.

    Domains to retain are evaluated in one process.
    """
    is_spread = kind_of(spec).uses_processes and "num_gpus" in type(spec).model_fields
    if not is_spread or spec.num_gpus or getattr(spec, "retain", None) or settings.processes <= 1:
        return spec
    return spec.model_copy(update={"num_gpus": settings.processes})
