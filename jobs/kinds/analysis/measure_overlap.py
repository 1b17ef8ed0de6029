"""Measure the bigram overlap of every two domains (DEMix §4.4) and store the matrix as a report."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from engine.errors import CorpusError
from engine.events import Progress
from engine.text.overlap import NUM_BIGRAMS, SAMPLE_BYTES, Bigrams, domain_bigrams, overlap_matrix
from jobs.attempt.work import JobRun, Work
from jobs.kinds.shared.tokens import read_domains
from workbench.kinds.analysis import MeasureOverlap
from workbench.registry.reports import register_report


def run(work: Work, spec: MeasureOverlap) -> JobRun:
    """Counts the bigrams of each domain once, then compares all pairs. Each domain is one step of progress."""
    with work.reading() as session:
        domains = read_domains(session, work.storage, spec.domains)
    if len(domains) < 2:
        raise CorpusError(f"Overlap needs at least two domains; there are {len(domains)}.", "Import more text.")
    bigrams: list[Bigrams] = []
    for domain in domains:
        yield Progress(len(bigrams), len(domains), "domains", f"counting the bigrams of {domain.name}")
        bigrams.append(domain_bigrams(domain.documents()))
    yield Progress(len(domains), len(domains), "domains")
    findings = {
        "domains": [domain.name for domain in domains],
        "data_sha256": [domain.data_sha256 for domain in domains],
        "overlap": overlap_matrix(bigrams, bigrams).tolist(),
        "num_bigrams": [len(of_domain) for of_domain in bigrams],
        "most_bigrams": NUM_BIGRAMS,
        "sample_bytes": SAMPLE_BYTES,
    }

    def register(session: Session) -> dict[str, Any]:
        title = f"Bigram overlap of {len(domains)} domains"
        report = register_report(session, "overlap", title, findings, job_id=work.job_id)
        return {"report": report.id, "domains": findings["domains"]}

    return register
