"""What the weights of a trained expert can be made from again, to the bit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from workbench.formatting.number_format import pluralize
from workbench.formatting.shell_command import shell_command
from workbench.schema.job_tables import Job
from workbench.schema.tables import Expert

ROW_ORDER = "row_order"  # of a job's result: “spec”, or “ids” in a training that an earlier version began


def reproducible_from(session: Session, expert: Expert) -> str:
    """A sentence for cards; empty for an expert that no training here has made, or whose environment is not known."""
    job = session.get(Job, expert.job_id) if expert.job_id else None
    environment = job.result.get("environment") if job else None
    if job is None or not environment:
        return ""
    start = expert.parent or expert.seed
    made_of = [
        f"the spec of its job (seed {(job.spec.get('training') or {}).get('seed', 0)})",
        f"text with SHA-256 {expert.data_sha256[:12]}",
        *([f"“{start.name}” with SHA-256 {start.artifact.sha256[:12]}"] if start else []),
        describe_environment(environment),
        f"Expert Workbench {expert.code_version}",
    ]
    of_ids = len(job.result.get("experts", ())) > 1 and job.result.get(ROW_ORDER) != "spec"
    limits = "On a GPU equal bits are not promised." if environment["device"] != "cpu" else ""
    if of_ids and not limits:
        command = shell_command("verify", "--replay", expert.name)
        limits = f"An earlier version ordered its rows by random ids: {command} makes the same bits, a new job may not."
    return f"{', '.join(made_of)}. {limits}".strip()


def describe_environment(environment: Mapping[str, Any]) -> str:
    """What bits depend on besides the input, as `engine.device.Environment` records it."""
    versions = ", ".join(f"{name} {version}" for name, version in environment["versions"].items())
    threads, processes = pluralize(environment["threads"], "thread"), environment["processes"] or 1
    return (
        f"{environment['device']} of {environment['processor']} ({environment['instructions']}), {threads}, "
        f"{pluralize(processes, 'process', 'processes')}, {versions}"
    )
