"""Make a domain of each cluster: the same documents in the same splits, so that held-out text stays held out."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy.orm import Session

from engine.clusters.documents import ClusteredDocuments, load_documents
from engine.errors import CorpusError, EngineError
from engine.events import Event, Progress
from engine.text.split import MAX_DOMAINS, store_documents
from jobs.attempt.work import Register, Work, stable_id
from jobs.kinds.shared.clusters.text import NONE, Splits, read_documents
from jobs.kinds.shared.clusters.text_files import folders_of
from workbench.formatting.number_format import pluralize
from workbench.kinds.clusters import MakeClusterDomains
from workbench.registry.clusters.cluster_routing import corpus_name, domain_names, set_domains
from workbench.registry.clusters.clusterings import ClusteringFiles, clustering_files, clustering_row, require_unedited
from workbench.registry.corpora import domain_row, register_corpus
from workbench.store import artifact_kinds
from workbench.store.artifacts import register_artifact


@dataclass(frozen=True)
class _Inputs:
    files: ClusteringFiles
    corpus: str
    domains: dict[int, str]  # names by the numbers of their clusters


def run(work: Work, spec: MakeClusterDomains) -> Generator[Event, None, Register]:
    """Makes one corpus with a domain for each cluster that needs one."""
    with work.reading() as session:
        row = clustering_row(session, spec.clustering)
        files = clustering_files(session, work.storage, spec.clustering)
        inputs = _Inputs(files, corpus_name(session, row), domain_names(session, row))
    yield Progress(0, None, "documents", "listing documents")
    if spec.domains and spec.domains != list(inputs.domains.values()):
        raise EngineError(
            f"The clusters of “{spec.clustering}” have changed since this job was created.",
            "Submit the plan again.",
        )
    if not inputs.domains:
        return lambda _: _result(inputs, "Every cluster has its domain already.")
    inputs.files.kept.check()
    documents = load_documents(inputs.files.kept.folder)
    _refuse(inputs, documents)
    artifact_id = stable_id(work.job_id, "documents")
    with work.storage.new(artifact_id) as folder:
        numbers_N = np.where(np.isin(documents.labels_N, list(inputs.domains)), documents.labels_N, NONE)
        chosen = read_documents(folders_of(inputs.files), documents, numbers_N, inputs.domains)
        yield from store_documents(chosen, folder, total_bytes=_about(inputs, documents), split_of=Splits(documents))
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return _register(work, inputs, artifact_id, summary)


def _about(inputs: _Inputs, documents: ClusteredDocuments) -> int:
    """Approximate bytes of text in the clusters, for the progress."""
    share = float(np.isin(documents.labels_N, list(inputs.domains)).mean())
    return int(share * sum(source.num_bytes for source in inputs.files.sources))


def _refuse(inputs: _Inputs, documents: ClusteredDocuments) -> None:
    sizes = documents.sizes(len(inputs.files.numbers))
    empty = [number for number in inputs.domains if not sizes[number]]
    if empty:
        problem = f"A domain needs documents. Of the {len(sizes)} clusters these are empty: {_numbers(empty)}."
        raise CorpusError(problem, "Merge them with another cluster, or find fewer clusters.")
    if len(inputs.domains) > MAX_DOMAINS:
        problem = f"There are {len(inputs.domains)} clusters; at most {MAX_DOMAINS} can become domains together."
        raise CorpusError(problem, "Find fewer clusters.")


def _register(work: Work, inputs: _Inputs, artifact_id: str, summary: Mapping[str, Any]) -> Register:
    licences = sorted({source.licence for source in inputs.files.sources} - {""})
    numbers = {name: number for number, name in inputs.domains.items()}

    def register(session: Session) -> dict[str, Any]:
        row = require_unedited(session, inputs.files.id, inputs.files.artifact_id)
        artifact = register_artifact(session, work.storage, artifact_id, artifact_kinds.DOCUMENTS, job_id=work.job_id)
        card = register_corpus(
            session,
            name=inputs.corpus,
            role="train",
            source=f"clusters of {', '.join(_names(inputs))}",
            artifact=artifact,
            summary=summary,
            report={"clustering": inputs.files.name},
            licence="; ".join(licences),
            clustering_id=row.id,
            job_id=work.job_id,
        )
        set_domains(session, row, {numbers[name]: domain_row(session, name).id for name in card.domains})
        return _result(inputs, f"{pluralize(len(card.domains), 'domain')} in the corpus {card.name}.")

    return register


def _result(inputs: _Inputs, sentence: str) -> dict[str, Any]:
    return {"clustering": inputs.files.name, "domains": list(inputs.domains.values()), "sentence": sentence}


def _names(inputs: _Inputs) -> list[str]:
    return [source.name for source in inputs.files.sources]


def _numbers(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
