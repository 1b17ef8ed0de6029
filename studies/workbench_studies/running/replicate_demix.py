"""Write the report of a replication of DEMix from the scores and curves of its jobs.

Nothing is trained or scored here.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import asdict

from sqlalchemy.orm import Session

from engine.events import Event, Progress
from engine.statistics.bootstrap import Resampled
from engine.statistics.curves import Curve
from jobs.attempt.work import Register, Work
from jobs.kinds.shared.tokens import domain_files
from workbench.answers.cards import JobCard
from workbench.kinds.training.train_expert import TrainExpert
from workbench.kinds.training.train_joint import TrainJoint
from workbench.specs.requests import PlanStep
from workbench_studies.core.scored import Scores
from workbench_studies.demix.evidence import DemixEvidence
from workbench_studies.demix.findings import findings_of
from workbench_studies.demix.names import METHODS
from workbench_studies.demix.scored import DemixMeasured, DemixSubject, measure
from workbench_studies.demix.specifications import TrainedModel
from workbench_studies.kinds.replicate_demix import ReplicateDemix
from workbench_studies.papers.work import tokens_of_update, tokens_per_step
from workbench_studies.running.replication_report import (
    Texts,
    check_all,
    circumstances,
    job_ids,
    keep_report,
    planned_jobs,
    with_wholes,
)
from workbench_studies.running.stored_results import (
    domain_words,
    held_out_losses,
    num_parameters,
    overlap_by,
    stored_scores,
)


def run(work: Work, spec: ReplicateDemix) -> Generator[Event, None, Register]:
    """Reads the stored results, judges the claims and writes the report."""
    subject = DemixSubject(
        spec.name, spec.seeds, tuple(spec.domains), tuple(spec.novel), spec.budget, tuple(spec.removed)
    )
    with work.reading() as session:
        planned = planned_jobs(session, spec)
        made = num_parameters(session, job_ids(planned))
        scores = stored_scores(session, work.storage, spec.budget, subject.everywhere, job_ids(planned))
        curves = [one for step, card in planned if card and (one := _curve(session, subject, step, card.id))]
        files = {
            name: domain_files(session, work.storage, name) for name in sorted({domain for _, domain, _ in scores})
        }
        models = [model for step, card in planned if card and (model := _model(subject, step, card, made))]
        words = domain_words(session, subject.everywhere)
        overlap = next((overlap_by(session, card.id) for step, card in planned if card and step.key == "overlap"), None)
    measured = yield from _measure(subject, scores, {name: one.documents() for name, one in files.items()})
    yield Progress(1, 2, "parts", "judging the claims")
    evidence = DemixEvidence(subject, measured, Resampled(measured.losses), overlap)
    size = spec.budget
    trainings = {
        "adapting": asdict(size.adapting),
        "adapting_tokens": size.adapting.num_steps * tokens_of_update(size.adapting, 1),
        "training_tokens": size.training.num_steps * tokens_of_update(size.training, len(spec.domains)),
    }
    findings = findings_of(evidence, curves, circumstances(work, spec, planned, trainings), models=models, words=words)
    return keep_report(work, findings)


def _model(
    subject: DemixSubject, step: PlanStep, card: JobCard, num_parameters: Mapping[str, int]
) -> TrainedModel | None:
    """The model that a joint training made for comparison; None for other jobs, and until it is done."""
    compared = {run.mixture(method) for run in subject.runs for method in METHODS}
    match step.spec:
        case TrainJoint(name=name, method=method, training=training, seed_model=seed) if name in compared:
            names = [seed, *step.spec.experts]
            if all(one in num_parameters for one in names):
                sizes = [num_parameters[one] for one in names]
                return TrainedModel(
                    method,
                    training.seed,
                    sizes[0],
                    tuple(sizes[1:]),
                    card.result.get("throughput", {}),
                    card.result.get("devices"),
                )
    return None


def _curve(session: Session, subject: DemixSubject, step: PlanStep, job_id: str) -> Curve | None:
    """The held-out losses of a training; None for other jobs, and for models that only table 7 uses."""
    compared = {run.mixture(method) for run in subject.runs for method in METHODS}
    match step.spec:
        case TrainJoint(name=name, method=method, training=training) if name in compared:
            return Curve(method, training.seed, held_out_losses(session, job_id), tokens_per_step(step))
        case TrainExpert(domain=target, full_model=full_model, training=training):
            system = "dense-DAPT" if full_model else "DEMix-DAPT"
            return Curve(system, training.seed, held_out_losses(session, job_id), tokens_per_step(step), target)
    return None


def _measure(subject: DemixSubject, scores: Scores, texts: Texts) -> Generator[Event, None, DemixMeasured]:
    check_all(scores.values())
    scores = with_wholes(scores, texts)
    total, measured = subject.seeds * len(subject.everywhere), DemixMeasured()
    for done, place in enumerate(measure(subject, scores, measured), 1):
        yield Progress(done, total, "texts", f"mixing stored scores: {place}")
    return measured
