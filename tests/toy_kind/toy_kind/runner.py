"""Counts the words of a domain."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from sqlalchemy.orm import Session

from engine.events import Event, Progress
from engine.text.split import read_split
from jobs.attempt.work import Register, Work
from jobs.kinds.shared.tokens import domain_files
from toy_kind.kind import CountWords
from workbench.registry.reports import register_report


def run(work: Work, spec: CountWords) -> Generator[Event, None, Register]:
    """One step; the number is kept as a report."""
    yield Progress(0, 1, "domains", "counting")
    with work.reading() as session:
        domain = domain_files(session, work.storage, spec.domain)
    num_words = sum(len(row["text"].split()) for row in read_split(domain.documents(), spec.split))

    def register(session: Session) -> dict[str, Any]:
        findings = {"domain": spec.domain, "num_words": num_words}
        report = register_report(session, "words", f"Words of {spec.domain}", findings, job_id=work.job_id)
        return {**findings, "report": report.id}

    return register
