"""Certify an addition (DEMix §6): nothing that was there has changed, and what each domain gained or lost."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy.orm import Session

from engine.analysis.addition import add_and_compare
from engine.events import Event, Progress
from engine.files import faults_in
from jobs.attempt.work import Register, Work
from jobs.kinds.shared.distances import measure_missing
from jobs.kinds.shared.scoring import register_scores, score_missing
from workbench.analysis.additions import KIND, Addition, Change, Recorded, addition_of, beside_parent, changes, verdict
from workbench.analysis.evaluations import measure_for
from workbench.answers.changes import BesideParent
from workbench.kinds.analysis.certify_addition import CertifyAddition
from workbench.registry.reports import register_report


@dataclass(frozen=True)
class _Looked:
    """A folder, every byte of it looked at."""

    recorded: Recorded
    num_files: int
    faults: tuple[str, ...]

    def told(self) -> dict[str, Any]:
        """As JSON; the hash is that of the manifest, which holds those of all files."""
        return {
            "what": self.recorded.what,
            "num_files": self.num_files,
            "sha256": str(self.recorded.kept.sha256)[:12],
            "recorded_before": self.recorded.before,
            "faults": list(self.faults),
        }


def run(work: Work, spec: CertifyAddition) -> Generator[Event, None, Register]:
    """Hashes what is there, then scores what is missing; the report is made whatever comes out.

    Only what was recorded before the addition is judged. A file that is not what it was is a finding, not a failure of
    the job: it would fail again, and the report be lost. No model is loaded from damaged files, nor any scored beside
    them.
    """
    with work.reading() as session:
        added = addition_of(session, work.storage, spec.mixture, spec.expert, spec.split)
        measure = measure_for(session, spec.mixture, spec.split, spec.block_size, spec.max_tokens)
    looked = yield from _look(added)
    older = [one for one in looked if one.recorded.before]
    faults = [fault for one in older for fault in one.faults]
    later = [fault for one in looked if not one.recorded.before for fault in one.faults]
    num_tensors = 0
    found: list[Change] = []
    alone: list[BesideParent] = []
    if not faults:
        there = {one.id: one.kept for one in added.others if one.before}
        untouched = add_and_compare(added.base.kept, there, added.expert_id, added.newcomer)
        num_tensors, faults = untouched.num_tensors, [f"The tensor {name} has changed." for name in untouched.changed]
    if not faults and not later:
        yield from _score(work, spec, added, measure)
        found, alone = _measure(work, spec, measure)
    sentence = verdict(faults, sum(one.num_files for one in older), num_tensors, found, later)
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
            "folders": [one.told() for one in looked],
            "split": spec.split,
            "block_size": measure[0],
            "domains": [_told(one) for one in found],
            "alone": [one.model_dump() for one in alone],
        },
    )


def _look(added: Addition) -> Generator[Event, None, list[_Looked]]:
    """Every folder, hashed anew and held against its manifest and the registry."""
    looked, folders = [], [added.base, *added.others, *added.beside]
    for number, one in enumerate(folders):
        faults = tuple(f"{name} of {one.what} {fault}" for name, fault in faults_in(one.kept.folder, one.kept.sha256))
        looked.append(_Looked(one, 0 if faults else one.kept.num_files(), faults))
        yield Progress(number + 1, len(folders), "folders", "hashing what was there", is_first=True)
    return looked


def _score(
    work: Work, spec: CertifyAddition, added: Addition, measure: tuple[int, int]
) -> Generator[Event, None, None]:
    scores = yield from score_missing(work, spec.mixture, added.domains, spec.split, *measure)
    yield from measure_missing(work, spec.mixture, added.domains, spec.split, *measure)
    with work.transaction() as session:
        register_scores(session, work, scores)


def _measure(work: Work, spec: CertifyAddition, measure: tuple[int, int]) -> tuple[list[Change], list[BesideParent]]:
    told: dict[str, Any] = {"split": spec.split, "block_size": measure[0], "max_tokens": measure[1]}
    with work.reading() as session:
        found = changes(session, work.storage, spec.mixture, spec.expert, **told)
        return found, beside_parent(session, spec.expert, **told)


def _told(one: Change) -> dict[str, Any]:
    return {**asdict(one), "change_percent": one.percent}


def _register(work: Work, spec: CertifyAddition, added: Addition, findings: dict[str, Any]) -> Register:
    def register(session: Session) -> dict[str, Any]:
        title = f"Addition of {spec.expert} to {spec.mixture}"
        report = register_report(session, KIND, title, findings, about_id=added.expert_id, job_id=work.job_id)
        return {key: findings[key] for key in ("expert", "mixture", "ok", "sentence")} | {"report": report.id}

    return register
