"""A home in which everything that has a text of its own is called, described and filled with what could be a script."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import cycle
from typing import Any

from sqlalchemy import inspect, select
from sqlalchemy.orm import Session

from tests.browser.conftest import run_all
from tests.browser.payloads import PAYLOADS
from workbench.registry import database
from workbench.schema.base import new_id
from workbench.schema.job_tables import Job, JobEvent
from workbench.schema.tables import (
    Cluster,
    Clustering,
    ComparedAnswer,
    Comparison,
    Corpus,
    Domain,
    Expert,
    Mixture,
    Report,
    SavedView,
    SeedModel,
)
from workbench.settings import Settings

COMMANDS = (
    "corpus add texts-2 {texts} --here",
    "cluster find topics --clusters 3 --dimension 3 --domains code,law,texts-2 --here",
    "expert certify-removal first/code --mixture first --block-size 32 --blocks 4 --prefixes 10 --here",
    "evaluate overlap --domains code,law --here",
)
ANSWER = ("model", "variant", "text")
SHOWN = 40  # rows of one kind: more than a page shows at once


def make_hostile(settings: Settings) -> None:
    """Fills a copy of a trained home. Names are set behind the checks that would refuse some of them."""
    texts = settings.root.parent / "hostile.jsonl"
    texts.write_text("\n".join(json.dumps({"text": f"{payload} {payload}"}) for payload in PAYLOADS), encoding="utf-8")
    run_all(settings, *(command.format(texts=texts) for command in COMMANDS))
    texts_left = cycle(PAYLOADS)
    try:
        with database.transaction(settings) as session:
            _rename(session, texts_left)
            _add_rows(session, texts_left)
    finally:
        database.close_engine(settings)


def _rename(session: Session, texts: Iterator[str]) -> None:
    for table in (Corpus, Domain, SeedModel, Clustering, Cluster, Expert, Mixture):
        for row in session.scalars(select(table)):
            row.name = next(texts)
            if hasattr(row, "notes"):
                row.notes = next(texts)
    for cluster in session.scalars(select(Cluster)):
        cluster.terms = [next(texts) for _ in range(5)]
    for clustering in session.scalars(select(Clustering)):
        names = dict(session.execute(select(Domain.id, Domain.name)).tuples().all())
        clustering.sources = [{**source, "name": names[source["id"]]} for source in clustering.sources]
    for corpus in session.scalars(select(Corpus)):
        corpus.source = next(texts)
    for report in session.scalars(select(Report)):
        report.title = next(texts)
        report.findings = _hostile(report.findings, texts)
    for job in session.scalars(select(Job)):
        job.title, job.progress_note = next(texts), next(texts)
    for event in session.scalars(select(JobEvent)):
        event.message = next(texts)


def _hostile(findings: Any, texts: Iterator[str]) -> Any:
    """The same findings; every name of an expert, domain or mixture, and every sentence, is another text."""
    if isinstance(findings, dict):
        return {key: _hostile(value, texts) for key, value in findings.items()}
    if isinstance(findings, list):
        return [_hostile(finding, texts) for finding in findings]
    is_name = isinstance(findings, str) and (findings in NAMES or " " in findings)
    return next(texts) if is_name else findings


NAMES = {"first", "first/code", "first/law", "code", "law", "kitchen", "texts", "texts-2"}


def _add_rows(session: Session, texts: Iterator[str]) -> None:
    expert, mixture = session.scalars(select(Expert)).first(), session.scalars(select(Mixture)).first()
    job = session.scalars(select(Job).where(Job.kind == "evaluate")).first()
    assert expert is not None
    assert mixture is not None
    assert job is not None
    for number in range(SHOWN):
        other = {"name": f"{next(texts)} {number}", "notes": next(texts), "tags": [next(texts)]}
        _copy(session, expert, **other, mark=f"{number:03}")
        failed = _copy(session, job, title=next(texts), state="failed", error=next(texts), next_step=next(texts))
        session.add(JobEvent(job_id=failed.id, message=next(texts)))
        session.add(Mixture(name=f"{next(texts)} {number}", gate=mixture.gate, notes=next(texts)))
        session.add(SavedView(name=f"{next(texts)} {number}", address="experts", updated_at=time.time()))
        comparison = Comparison(prompt=next(texts), messages=[], domain=next(texts), domain_source="user")
        comparison.answers = [
            ComparedAnswer(
                position=place, model=next(texts), variant=next(texts), setup_sha256="0" * 64, text=next(texts)
            )
            for place in range(2)
        ]
        session.add(comparison)


def _copy(session: Session, row: Any, **changed: Any) -> Any:
    """Another row of the same table."""
    values = {column.key: getattr(row, column.key) for column in inspect(type(row)).column_attrs}
    copy = type(row)(**{**values, "id": new_id(), **changed})
    session.add(copy)
    session.flush()
    return copy
