"""Write a replication's report from the scores and curves that its jobs left; nothing is trained or scored here."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy.orm import Session

from engine.config import AdaptingConfig
from engine.events import Event, Progress
from engine.replication.bootstrap import Resampled
from engine.replication.curves import Curve
from engine.selfcheck.report import device_name, versions
from jobs.kinds.ids import made_by
from jobs.replications import jobs_of
from jobs.work import Register, Work
from workbench.cards import JobCard
from workbench.plans import Step
from workbench.replications.demix import METHODS
from workbench.replications.evidence import Evidence, Overlap
from workbench.replications.findings import Circumstances, JobFacts, findings_of, summary
from workbench.replications.page import page
from workbench.replications.plan import plan
from workbench.replications.report import markdown, title
from workbench.replications.scored import Measured, ScoreKey, Stored, Subject, measure
from workbench.services.artifacts import register_artifact
from workbench.services.replications import REPORT, held_out_losses, overlap_by, stored_scores
from workbench.services.reports import register_report
from workbench.specs import Replicate, TrainDemix, TrainExpert


@dataclass(frozen=True)
class _Inputs:
    scores: Mapping[ScoreKey, Stored]
    curves: list[Curve]
    overlap: Overlap | None
    jobs: list[JobFacts]


def run(work: Work, spec: Replicate) -> Generator[Event, None, Register]:
    """Reads, judges, writes: Markdown, one HTML page and the findings as JSON."""
    subject = Subject(spec.name, spec.seeds, tuple(spec.domains), tuple(spec.novel), tuple(spec.removed), spec.budget)
    with work.reading() as session:
        inputs = _read(session, work, spec, subject)
    measured = yield from _measure(subject, inputs.scores)
    yield Progress(1, 2, "parts", "judging the claims")
    evidence = Evidence(subject, measured, Resampled(measured.losses), inputs.overlap)
    findings = findings_of(evidence, inputs.curves, _circumstances(work, spec, inputs))
    artifact_id = made_by(work.job_id, "report")
    with work.storage.new(artifact_id) as folder:
        (folder / "report.md").write_text(markdown(findings), encoding="utf-8")
        (folder / "report.html").write_text(page(findings), encoding="utf-8")
        (folder / "findings.json").write_text(json.dumps(findings, indent=1), encoding="utf-8")
    return _register(work, findings, artifact_id)


def _read(session: Session, work: Work, spec: Replicate, subject: Subject) -> _Inputs:
    whole = spec.model_copy(update={"partial": False})
    steps, found = plan(whole), jobs_of(session, whole)
    overlap = found.get("overlap")
    return _Inputs(
        stored_scores(session, work.storage, subject, [job.id for job in found.values()]),
        [
            curve
            for step in steps
            if step.key in found and (curve := _curve(session, subject, step, found[step.key].id))
        ],
        overlap_by(session, overlap.id) if overlap else None,
        [_facts(step, found.get(step.key)) for step in steps],
    )


def _curve(session: Session, subject: Subject, step: Step, job_id: str) -> Curve | None:
    """The held-out losses of a training; None for other jobs, and for models that only serve table 7."""
    compared = {run.mixture(method) for run in subject.runs for method in METHODS}
    match step.spec:
        case TrainDemix(name=name, method=method, training=training) if name in compared:
            return Curve(method, training.seed, held_out_losses(session, job_id), _tokens_per_step(step))
        case TrainExpert(domain=target, whole=whole, training=training):
            system = "dense-DAPT" if whole else "DEMix-DAPT"
            return Curve(system, training.seed, held_out_losses(session, job_id), _tokens_per_step(step), target)
    return None


def _tokens_per_step(step: Step) -> int:
    """Tokens of one update of a training; 0 for other jobs."""
    match step.spec:
        case TrainDemix():
            return _tokens(step.spec.training, len(step.spec.domains))
        case TrainExpert():
            return _tokens(step.spec.training, 1)
    return 0


def _tokens(training: AdaptingConfig, num_domains: int) -> int:
    return training.block_size * training.sequences_per_domain * training.accumulate * num_domains


def _facts(step: Step, card: JobCard | None) -> JobFacts:
    kind = step.spec.model_dump()["kind"]
    if card is None:
        return JobFacts(step.title, kind, "not asked for", None)
    seconds = card.finished_at - card.started_at if card.finished_at and card.started_at else None
    training = step.spec.training if isinstance(step.spec, TrainDemix | TrainExpert) else None
    tokens = training.num_steps * _tokens_per_step(step) if training else None
    return JobFacts(step.title, kind, card.state, seconds, tokens, is_own=card.title == step.title)


def _measure(subject: Subject, scores: Mapping[ScoreKey, Stored]) -> Generator[Event, None, Measured]:
    for stored in scores.values():
        stored.kept.check()
    total, measured = subject.seeds * len(subject.everywhere), Measured()
    for done, place in enumerate(measure(subject, scores, measured), 1):
        yield Progress(done, total, "texts", f"mixing stored scores: {place}")
    return measured


def _circumstances(work: Work, spec: Replicate, inputs: _Inputs) -> Circumstances:
    size = spec.budget
    budget = {
        "shape": asdict(size.shape), "vocab_size": size.vocab_size, "training": asdict(size.training),
        "adapting": asdict(size.adapting), "test_tokens": size.test_tokens, "block_size": size.block_size,
        "prior_blocks": size.prior_blocks, "max_bytes": size.max_bytes,
        "adapting_tokens": size.adapting.num_steps * _tokens(size.adapting, 1),
        "training_tokens": size.training.num_steps * _tokens(size.training, len(spec.domains)),
    }  # fmt: skip
    return Circumstances(device_name(work.settings.device), versions(), spec.size, budget, inputs.jobs)


def _register(work: Work, findings: dict[str, Any], artifact_id: str) -> Register:
    def register(session: Session) -> dict[str, Any]:
        artifact = register_artifact(session, work.storage, artifact_id, "report", job_id=work.job_id)
        report = register_report(session, REPORT, title(findings), findings, artifact=artifact, job_id=work.job_id)
        return {"name": findings["name"], "report": report.id, "summary": summary(findings), "marks": findings["marks"]}

    return register
