"""Write the report of a replication of MoDE from the scores of its jobs.

Nothing is trained or scored here.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import asdict

from engine.events import Event, Progress
from engine.statistics.bootstrap import Resampled
from jobs.attempt.work import Register, Work
from jobs.kinds.shared.tokens import domain_files
from workbench_studies.core.scored import Scores
from workbench_studies.kinds.replicate_mode import ReplicateMode
from workbench_studies.mode.evidence import ModeEvidence
from workbench_studies.mode.findings import findings_of
from workbench_studies.mode.scored import ModeMeasured, ModeSubject, measure
from workbench_studies.papers.work import tokens_of_update
from workbench_studies.running.replication_report import (
    check_all,
    circumstances,
    job_ids,
    keep_report,
    planned_jobs,
    with_wholes,
)
from workbench_studies.running.stored_results import num_parameters, stored_scores


def run(work: Work, spec: ReplicateMode) -> Generator[Event, None, Register]:
    """Reads the stored results, judges the claims and writes the report."""
    first, second = spec.targets
    subject = ModeSubject(
        spec.name, spec.seeds, tuple(spec.domains), tuple(spec.novel), spec.budget, (first, second), spec.retention
    )
    with work.reading() as session:
        planned = planned_jobs(session, spec)
        ids = job_ids(planned)
        scores = stored_scores(session, work.storage, spec.budget, subject.everywhere, ids)
        measured = ModeMeasured(num_parameters=num_parameters(session, ids))
        files = {
            name: domain_files(session, work.storage, name) for name in sorted({domain for _, domain, _ in scores})
        }
    texts = {name: one.documents() for name, one in files.items()}
    yield from _measure(subject, with_wholes(scores, texts), measured)
    yield Progress(1, 2, "parts", "judging the claims")
    size = spec.budget
    trainings = {
        "seeding": asdict(size.seeding),
        "mode": asdict(size.mode),
        "lora": asdict(size.lora),
        "shared_backbone": size.shared_backbone,
        "ablation_seeds": size.ablation_seeds,
        "seeding_tokens": size.seeding.num_steps * tokens_of_update(size.seeding, len(spec.known)),
        "training_tokens": size.training.num_steps * tokens_of_update(size.training, len(spec.targets)),
    }
    evidence = ModeEvidence(subject, measured, Resampled(measured.losses))
    return keep_report(work, findings_of(evidence, circumstances(work, spec, planned, trainings)))


def _measure(subject: ModeSubject, scores: Scores, measured: ModeMeasured) -> Generator[Event, None, None]:
    check_all(scores.values())
    total = subject.seeds * len(subject.everywhere)
    for done, place in enumerate(measure(subject, scores, measured), 1):
        yield Progress(done, total, "texts", f"reading stored scores: {place}")
