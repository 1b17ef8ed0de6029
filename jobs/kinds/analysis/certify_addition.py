"""Certify an addition (DEMix §6): existing files are unchanged; report what each domain gained or lost."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy.orm import Session

from engine.analysis.removal import add_and_compare
from engine.events import Event, Progress
from engine.files import faults_in
from jobs.attempt.work import Register, Work
from jobs.kinds.shared.distances import measure_missing
from jobs.kinds.shared.environment import report_reproducible_from
from jobs.kinds.shared.scoring import register_scores, score_missing
from workbench.analysis.changes.additions import (
    KIND,
    Addition,
    BesideParent,
    MeasuredChange,
    Recorded,
    addition_of,
    beside_parent,
    changes,
    verdict,
)
from workbench.analysis.perplexity_tables import measure_for
from workbench.kinds.analysis import CertifyAddition
from workbench.registry.reports import register_report


@dataclass(frozen=True)
class _CheckedFolder:
    """A folder after every byte of it was hashed."""

    recorded: Recorded
    num_files: int
    faults: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The folder as JSON. The hash is that of the manifest, which holds the hashes of all files."""
        return {
            "what": self.recorded.what,
            "num_files": self.num_files,
            "sha256": str(self.recorded.kept.sha256)[:12],
            "recorded_before": self.recorded.before,
            "faults": list(self.faults),
        }


def run(work: Work, spec: CertifyAddition) -> Generator[Event, None, Register]:
    """Hashes the existing files, then scores what is missing. The report is written whatever the result.

    Only files recorded before the addition are judged. A changed file is a finding, not a failure of the job, which
    would fail again and lose the report. No model is loaded or scored when a file is damaged.
    """
    with work.reading() as session:
        added = addition_of(session, work.storage, spec.mixture, spec.expert, spec.split)
        measure = measure_for(session, spec.mixture, spec.split, spec.block_size, spec.max_tokens)
    checked = yield from _check_folders(added)
    older = [one for one in checked if one.recorded.before]
    faults = [fault for one in older for fault in one.faults]
    later = [fault for one in checked if not one.recorded.before for fault in one.faults]
    num_tensors = 0
    measured: list[MeasuredChange] = []
    beside: list[BesideParent] = []
    if not faults:
        existing = {one.id: one.kept for one in added.others if one.before}
        untouched = add_and_compare(added.base.kept, existing, added.expert_id, added.newcomer)
        num_tensors, faults = untouched.num_tensors, [f"The tensor {name} has changed." for name in untouched.changed]
    if not faults and not later:
        yield from _score(work, spec, added, measure)
        measured, beside = _measure(work, spec, measure)
    sentence = verdict(faults, sum(one.num_files for one in older), num_tensors, measured, later, added.outcome)
    return _register(
        work,
        spec,
        added,
        {
            "expert": spec.expert,
            "mixture": spec.mixture,
            "ok": not faults,
            "sentence": sentence,
            "base_sha256": str(added.base.kept.sha256)[:12],
            "num_tensors": num_tensors,
            "folders": [one.to_json() for one in checked],
            "split": spec.split,
            "block_size": measure[0],
            "domains": [_change_json(one) for one in measured],
            "alone": [one.model_dump() for one in beside],
            "reproducible_from": report_reproducible_from(work),
        },
    )


def _check_folders(added: Addition) -> Generator[Event, None, list[_CheckedFolder]]:
    """Hashes every folder again and compares it with its manifest and the registry."""
    checked, folders = [], [added.base, *added.others, *added.beside]
    for number, one in enumerate(folders):
        faults = tuple(f"{name} of {one.what} {fault}" for name, fault in faults_in(one.kept.folder, one.kept.sha256))
        checked.append(_CheckedFolder(one, 0 if faults else one.kept.num_files(), faults))
        yield Progress(number + 1, len(folders), "folders", "hashing existing files", is_first=True)
    return checked


def _score(
    work: Work, spec: CertifyAddition, added: Addition, measure: tuple[int, int]
) -> Generator[Event, None, None]:
    scores = yield from score_missing(work, spec.mixture, added.domains, spec.split, *measure)
    yield from measure_missing(work, spec.mixture, added.domains, spec.split, *measure)
    with work.transaction() as session:
        register_scores(session, work, scores)


def _measure(
    work: Work, spec: CertifyAddition, measure: tuple[int, int]
) -> tuple[list[MeasuredChange], list[BesideParent]]:
    measure_args: dict[str, Any] = {"split": spec.split, "block_size": measure[0], "max_tokens": measure[1]}
    with work.reading() as session:
        measured = changes(session, work.storage, spec.mixture, spec.expert, **measure_args)
        return measured, beside_parent(session, spec.expert, **measure_args)


def _change_json(one: MeasuredChange) -> dict[str, Any]:
    return {**asdict(one), "change_percent": one.percent}


def _register(work: Work, spec: CertifyAddition, added: Addition, findings: dict[str, Any]) -> Register:
    def register(session: Session) -> dict[str, Any]:
        title = f"Addition of {spec.expert} to {spec.mixture}"
        report = register_report(session, KIND, title, findings, about_id=added.expert_id, job_id=work.job_id)
        return {key: findings[key] for key in ("expert", "mixture", "ok", "sentence")} | {"report": report.id}

    return register
