"""Shared by all replications: collect the plan's jobs and circumstances, and store the report."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from engine.environment import device_name, versions
from engine.errors import Problem
from engine.text.split import first_in_group
from jobs.attempt.work import Register, Work, stable_id
from workbench.answers.cards import JobCard
from workbench.kinds.training.compose_mode import ComposeMode
from workbench.kinds.training.train_expert import TrainExpert
from workbench.kinds.training.train_joint import TrainJoint
from workbench.kinds.training.train_mode import TrainMode
from workbench.registry import corpora
from workbench.registry.reports import register_report
from workbench.specs.requests import PlanStep
from workbench.store import artifact_kinds
from workbench.store.artifacts import register_artifact
from workbench.store.storage import Storage
from workbench_studies.core.findings import Circumstances, JobFacts, summary
from workbench_studies.core.scored import Scores, Stored
from workbench_studies.kinds.replicate import Replicate
from workbench_studies.papers.catalog import paper_of
from workbench_studies.papers.commands import command_of, corpus_of
from workbench_studies.papers.markdown import markdown
from workbench_studies.papers.page import page
from workbench_studies.papers.plan import plan
from workbench_studies.papers.todays_rule import in_todays_words
from workbench_studies.papers.work import tokens_per_step
from workbench_studies.running.stored_results import REPORT
from workbench_studies.running.submission import jobs_of

PlannedJobs = list[tuple[PlanStep, JobCard | None]]  # each step of the plan with its job, if there is one
Texts = Mapping[str, Path]  # the folders of documents by domain


def planned_jobs(session: Session, spec: Replicate) -> PlannedJobs:
    """The plan of a replication with its jobs. A partial report has the same plan as a full one."""
    full_report = spec.model_copy(update={"partial": False})
    jobs = jobs_of(session, full_report)
    return [(step, jobs.get(step.key)) for step in plan(full_report)]


def job_ids(planned: PlannedJobs) -> list[str]:
    return [card.id for _, card in planned if card]


def check_all(stored: Iterable[Stored]) -> None:
    """Verifies stored files; raises DamagedFileError if one has changed."""
    for one in stored:
        one.kept.check()


def with_wholes(scores: Scores, texts: Texts) -> Scores:
    """Adds to the scores which documents are pieces of one longer document."""
    places = {(domain, split) for _, domain, split in scores}
    wholes = {(domain, split): first_in_group(texts[domain], split) for domain, split in places}
    return {key: replace(one, wholes_D=wholes[key[1:]]) for key, one in scores.items()}


def circumstances(work: Work, spec: Replicate, planned: PlannedJobs, trainings: Mapping[str, Any]) -> Circumstances:
    """Machine, jobs and budget; `trainings` holds what only this paper's budget has."""
    size = spec.budget
    budget = {
        "shape": asdict(size.shape),
        "vocab_size": size.vocab_size,
        "training": asdict(size.training),
        "test_tokens": size.test_tokens,
        "block_size": size.block_size,
        "prior_blocks": size.prior_blocks,
        "max_bytes": size.max_bytes,
        "piece_length": size.piece_length,
        **trainings,
    }
    jobs = [_facts(step, card) for step, card in planned]
    with work.reading() as session:
        samples = [_sample(session, work.storage, name) for name in (*spec.domains, *spec.novel)]
    return Circumstances(
        spec.paper,
        device_name(work.settings.device),
        versions(),
        spec.size,
        budget,
        jobs,
        corpus=corpus_of(spec),
        date=datetime.now(UTC).date().isoformat(),
        command=command_of(spec),
        samples=[sample for sample in samples if sample],
    )


def _sample(session: Session, storage: Storage, name: str) -> dict[str, Any]:
    """The size of a domain and the starts of some of its training documents; empty if it is not imported yet."""
    try:
        card = corpora.get_domain(session, name)
        documents = corpora.preview_documents(session, storage, name, limit=_NUM_LINES)
    except Problem:
        return {}
    lines = [" ".join(document.text[: 4 * _LINE].split())[:_LINE] for document in documents]
    return {"domain": name, "documents": card.num_documents, "bytes": card.num_bytes, "lines": lines}


_NUM_LINES, _LINE = 3, 100  # documents, characters


def _facts(step: PlanStep, card: JobCard | None) -> JobFacts:
    kind, writes_report = step.spec.model_dump()["kind"], isinstance(step.spec, Replicate)
    if card is None:
        return JobFacts(step.title, kind, "not submitted", None, writes_report=writes_report)
    seconds = card.finished_at - card.started_at if card.finished_at and card.started_at else None
    training = step.spec.training if isinstance(step.spec, TrainJoint | TrainExpert | TrainMode | ComposeMode) else None
    tokens = training.num_steps * tokens_per_step(step) if training else None
    is_own = card.title == step.title
    return JobFacts(step.title, kind, card.state, seconds, tokens, is_own=is_own, writes_report=writes_report)


def keep_report(work: Work, findings: dict[str, Any]) -> Register:
    """Stores Markdown, one HTML page and the findings as JSON in an artifact."""
    findings, artifact_id = in_todays_words(findings), stable_id(work.job_id, "report")
    with work.storage.new(artifact_id) as folder:
        (folder / "report.md").write_text(markdown(findings), encoding="utf-8")
        (folder / "report.html").write_text(page(findings), encoding="utf-8")
        (folder / "findings.json").write_text(json.dumps(findings, indent=1), encoding="utf-8")
    title = paper_of(findings).report_title(findings)

    def register(session: Session) -> dict[str, Any]:
        artifact = register_artifact(session, work.storage, artifact_id, artifact_kinds.REPORT, job_id=work.job_id)
        report = register_report(session, REPORT, title, findings, artifact=artifact, job_id=work.job_id)
        return {"name": findings["name"], "report": report.id, "summary": summary(findings), "marks": findings["marks"]}

    return register
