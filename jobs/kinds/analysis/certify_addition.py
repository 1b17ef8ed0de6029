"""Certify an addition (DEMix §6): existing files are unchanged; report what each domain gained or lost."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from sqlalchemy.orm import Session

from engine.analysis.removal import add_and_compare
from engine.events import Progress
from engine.files import faults_in
from jobs.attempt.work import Events, JobRun, Work
from jobs.kinds.shared.expert_files import seed_of
from jobs.kinds.shared.resume_guard import report_reproducible_from
from jobs.kinds.shared.scoring import measure_missing, register_scores, score_missing
from workbench.analysis.changes.additions import (
    KIND,
    Addition,
    BesideParent,
    MeasuredChange,
    addition_of,
    beside_parent,
    changes,
    verdict,
)
from workbench.analysis.perplexity_tables import measure_for
from workbench.kinds.analysis import CertifyAddition
from workbench.registry.reports import register_report
from workbench.schema.tables import Expert


def run(work: Work, spec: CertifyAddition) -> JobRun:
    """Hashes the existing files, then scores what is missing. The report is written whatever the result.

    Only files recorded before the addition are judged. A changed file is a finding, not a failure of the job, which
    would fail again and lose the report. No model is loaded or scored when a file is damaged.
    """
    with work.reading() as session:
        added = addition_of(session, work.storage, spec.mixture, spec.expert, spec.split)
        block_size, max_tokens = measure_for(session, spec.mixture, spec.split, spec.block_size, spec.max_tokens)
    measure: dict[str, Any] = {"split": spec.split, "block_size": block_size, "max_tokens": max_tokens}
    checked = yield from _check_folders(added)
    older = [folder for folder in checked if folder["recorded_before"]]
    faults = [fault for folder in older for fault in folder["faults"]]
    later = [fault for folder in checked if folder not in older for fault in folder["faults"]]
    num_tensors = 0
    measured: list[MeasuredChange] = []
    beside: list[BesideParent] = []
    if not faults:
        existing = {expert.id: expert.kept for expert in added.others if expert.before}
        untouched = add_and_compare(added.base.kept, existing, added.expert_id, added.newcomer)
        num_tensors, faults = untouched.num_tensors, [f"The tensor {name} has changed." for name in untouched.changed]
    if not faults and not later:
        scores = yield from score_missing(work, spec.mixture, added.domains, **measure)
        yield from measure_missing(work, spec.mixture, added.domains, **measure)
        with work.transaction() as session:
            register_scores(session, work, scores)
        with work.reading() as session:
            measured = changes(session, work.storage, spec.mixture, spec.expert, **measure)
            beside = beside_parent(session, spec.expert, **measure)
    num_files = sum(folder["num_files"] for folder in older)
    summary = {
        "expert": spec.expert,
        "mixture": spec.mixture,
        "ok": not faults,
        "sentence": verdict(faults, num_files, num_tensors, measured, later, added.outcome),
    }
    findings = {
        **summary,
        "base_sha256": str(added.base.kept.sha256)[:12],
        "num_tensors": num_tensors,
        "folders": checked,
        "split": spec.split,
        "block_size": block_size,
        "domains": [{**asdict(change), "change_percent": change.percent} for change in measured],
        "alone": [pair.model_dump() for pair in beside],
        "reproducible_from": report_reproducible_from(work),
    }

    def register(session: Session) -> dict[str, Any]:
        title = f"Addition of {spec.expert} to {spec.mixture}"
        report = register_report(session, KIND, title, findings, about_id=added.expert_id, job_id=work.job_id)
        expert = session.get(Expert, added.expert_id)
        return {**summary, **seed_of(session, expert.seed_id if expert else None), "report": report.id}

    return register


def _check_folders(added: Addition) -> Events[list[dict[str, Any]]]:
    """Hashes every folder again and compares it with its manifest and the registry; gives each as JSON.

    The hash is that of the manifest, which holds the hashes of all files.
    """
    checked, folders = [], [added.base, *added.others, *added.beside]
    for number, folder in enumerate(folders, 1):
        faults_by_name = faults_in(folder.kept.folder, folder.kept.sha256)
        faults = [f"{name} of {folder.what} {fault}" for name, fault in faults_by_name]
        checked.append(
            {
                "what": folder.what,
                "num_files": 0 if faults else folder.kept.num_files(),
                "sha256": str(folder.kept.sha256)[:12],
                "recorded_before": folder.before,
                "faults": faults,
            }
        )
        yield Progress(number, len(folders), "folders", "hashing existing files", is_first=True)
    return checked
