"""Import text: validate it, split it and store it as the domains of one corpus."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from engine.errors import CorpusError
from engine.events import Event
from engine.text.corpus import Document, ReadOptions, read_dataset, read_documents
from engine.text.dataset_source import DatasetSource
from engine.text.import_report import Report
from engine.text.local_sources import SOURCES, local_documents
from engine.text.plain_text import document_characters
from engine.text.split import store_documents
from engine.text.streams import TextFile, find_files, size_on_disk
from jobs.attempt.work import Register, Work, stable_id
from workbench.formatting.shell_command import shell_command
from workbench.kinds.data import ImportCorpus
from workbench.registry.corpora import register_corpus
from workbench.schema.names import ensure_free
from workbench.schema.tables import Corpus
from workbench.store import artifact_kinds
from workbench.store.artifacts import register_artifact


def run(work: Work, spec: ImportCorpus) -> Generator[Event, None, Register]:
    """Writes one artifact with the documents of all domains. An error leaves neither row nor file."""
    with work.reading() as session:
        ensure_free(session, Corpus, spec.name)
    report = Report()
    dataset = DatasetSource.parse(spec.dataset, spec.dataset_split).pinned() if spec.dataset else None
    documents, total_bytes = _source(spec, dataset, report)
    artifact_id = stable_id(work.job_id, "documents")
    with work.storage.new(artifact_id) as folder:
        try:
            yield from store_documents(
                documents,
                folder,
                total_bytes=spec.max_bytes or total_bytes,
                done_bytes=lambda: report.num_bytes if spec.max_bytes or not total_bytes else report.bytes_read,
            )
        except CorpusError as error:
            raise error if error.path else report.with_reasons(error) from None
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))

    cut = _cut_words(spec)

    def register(session: Session) -> dict[str, Any]:
        artifact = register_artifact(session, work.storage, artifact_id, artifact_kinds.DOCUMENTS, job_id=work.job_id)
        card = register_corpus(
            session,
            name=spec.name,
            role=spec.role,
            source=_source_name(spec, dataset),
            artifact=artifact,
            summary=summary,
            report=asdict(report),
            licence=spec.licence or _licence(spec),
            job_id=work.job_id,
        )
        return {
            "corpus": card.name,
            "domains": card.domains,
            "num_documents": report.num_documents,
            "num_left_out": report.num_left_out,
            "reasons": report.reasons,
            "cut": cut,
            "kept": _kept_text(spec.name, report),
        }

    return register


def _kept_text(name: str, report: Report) -> str:
    """What was kept and left out, what was recognised, and the command that lists it."""
    sentences = [report.kept_text(), report.fields_text(), *report.notes[:5]]
    if report.refused or len(report.notes) > 5:
        sentences.append(f"List it: `{shell_command('corpus', 'report', name)}`.")
    return " ".join(filter(None, sentences))


def _source(spec: ImportCorpus, dataset: DatasetSource | None, report: Report) -> tuple[Iterator[Document], int | None]:
    """The documents, and their bytes on disk if that is known."""
    options = ReadOptions(
        spec.text_field,
        spec.domain_field,
        spec.group_field,
        spec.max_bytes,
        spec.skip_bad,
        spec.anonymize,
        spec.piece_length,
        spec.format,
        tuple(spec.leave_out),
        spec.dataset_split,
    )
    if dataset:
        return read_dataset(dataset, options, report), None
    if spec.local_source:
        return local_documents(spec.local_source, options, report), None
    path = Path(spec.path)
    if not path.exists():
        raise CorpusError("There is no such file or folder.", "Check the path.", path=path)
    return read_documents(path, options, report), size_on_disk(path, spec.dataset_split)


def _cut_words(spec: ImportCorpus) -> str:
    """How texts were cut into documents, where they were."""
    sentences = []
    files = find_files(Path(spec.path), spec.dataset_split) if spec.path else ()
    if plain := next((one for one in files if isinstance(one, TextFile) and one.kind == "text"), None):
        length = document_characters(plain)
        sentences.append(
            f"Plain text was cut into documents, each at the first empty line after {length:,} characters."
        )
    if spec.piece_length:
        sentences.append(f"Longer documents were cut into pieces of at most {spec.piece_length:,} characters.")
    return " ".join(sentences)


def _source_name(spec: ImportCorpus, dataset: DatasetSource | None) -> str:
    if spec.local_source:
        return f"found on this machine: {SOURCES[spec.local_source].title}"
    return f"data set {dataset.name}, split {dataset.split}" if dataset else spec.path


def _licence(spec: ImportCorpus) -> str:
    return SOURCES[spec.local_source].licence if spec.local_source else ""
