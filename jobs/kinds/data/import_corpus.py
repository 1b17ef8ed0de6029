"""Import text: validate it, split it and store it as the domains of one corpus."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from engine.errors import CorpusError
from engine.text.corpus import Document, ReadOptions, read_dataset, read_documents
from engine.text.dataset_source import DatasetSource
from engine.text.import_report import ReadReport
from engine.text.local_sources import SOURCES, local_documents
from engine.text.plain_text import document_characters
from engine.text.split import store_documents
from engine.text.streams import TextFile, find_files, size_on_disk
from jobs.attempt.work import JobRun, Work
from workbench.formatting.shell_command import shell_command
from workbench.kinds.data import ImportCorpus
from workbench.registry.corpora import register_corpus
from workbench.store import artifact_kinds


def run(work: Work, spec: ImportCorpus) -> JobRun:
    """Writes one artifact with the documents of all domains. An error leaves neither row nor file."""
    report = ReadReport()
    dataset = DatasetSource.parse(spec.dataset, spec.dataset_split).pinned() if spec.dataset else None
    documents, total_bytes = _source(spec, dataset, report)
    artifact_id = work.stable_id("documents")
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

    cut = _cut_sentences(spec)
    source = f"data set {dataset.name}, split {dataset.split}" if dataset else spec.path
    if spec.local_source:
        source = f"found on this machine: {SOURCES[spec.local_source].title}"
    kept = [report.kept_text(), report.fields_text(), *report.notes[:5]]
    if report.refused or len(report.notes) > 5:
        kept.append(f"List it: `{shell_command('corpus', 'report', spec.name)}`.")

    def register(session: Session) -> dict[str, Any]:
        card = register_corpus(
            session,
            name=spec.name,
            role=spec.role,
            source=source,
            artifact=work.register_artifact(session, artifact_id, artifact_kinds.DOCUMENTS),
            summary=summary,
            report=asdict(report),
            licence=spec.licence or (SOURCES[spec.local_source].licence if spec.local_source else ""),
            job_id=work.job_id,
        )
        return {
            "corpus": card.name,
            "domains": card.domains,
            "num_documents": report.num_documents,
            "num_left_out": report.num_left_out,
            "reasons": report.reasons,
            "cut": cut,
            "kept": " ".join(filter(None, kept)),
        }

    return register


def _source(
    spec: ImportCorpus, dataset: DatasetSource | None, report: ReadReport
) -> tuple[Iterator[Document], int | None]:
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
        raise CorpusError("This file or folder does not exist.", "Check the path.", path=path)
    return read_documents(path, options, report), size_on_disk(path, spec.dataset_split)


def _cut_sentences(spec: ImportCorpus) -> str:
    """How texts were cut into documents, where they were."""
    sentences = []
    files = find_files(Path(spec.path), spec.dataset_split) if spec.path else ()
    if plain := next((file for file in files if isinstance(file, TextFile) and file.kind == "text"), None):
        length = document_characters(plain)
        sentences.append(
            f"Plain text was cut into documents, each at the first empty line after {length:,} characters."
        )
    if spec.piece_length:
        sentences.append(f"Longer documents were cut into pieces of at most {spec.piece_length:,} characters.")
    return " ".join(sentences)
