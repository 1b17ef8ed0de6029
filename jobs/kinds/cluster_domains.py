"""Make a domain of each cluster: the same documents in the same splits, so that held-out text stays held out."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy.orm import Session

from engine.clusters.documents import ClusteredDocuments, load_documents
from engine.clusters.sources import as_ids, hex_of, places_of, require_all
from engine.errors import CorpusError, EngineError
from engine.events import Event, Progress
from engine.text.corpus import Document
from engine.text.split import MAX_DOMAINS, SPLITS, keep_documents
from engine.text.tables import read_rows
from jobs.kinds.cluster_sources import folders_of
from jobs.kinds.ids import made_by
from jobs.work import Register, Work
from workbench.cluster_specs import MakeClusterDomains
from workbench.services.artifacts import register_artifact
from workbench.services.clusterings import (
    ClusteringFiles,
    clustering_files,
    clustering_row,
    corpus_name,
    domain_names,
    require_unedited,
    set_domains,
)
from workbench.services.corpora import domain_row, register_corpus

BATCH = 1024  # rows looked up at once


@dataclass(frozen=True)
class _Inputs:
    files: ClusteringFiles
    corpus: str
    domains: dict[int, str]  # names by the numbers of their clusters


def run(work: Work, spec: MakeClusterDomains) -> Generator[Event, None, Register]:
    """One corpus with a domain for each cluster that needs one."""
    with work.reading() as session:
        row = clustering_row(session, spec.clustering)
        files = clustering_files(session, work.storage, spec.clustering)
        inputs = _Inputs(files, corpus_name(session, row), domain_names(session, row))
    yield Progress(0, None, "documents", "listing what there is")
    if spec.domains and spec.domains != list(inputs.domains.values()):
        raise EngineError(
            f"The clusters must be those that were asked for, but “{spec.clustering}” has changed since.",
            "Ask again: the plan is made anew.",
        )
    if not inputs.domains:
        return lambda _: _result(inputs, "Every cluster has its domain already.")
    inputs.files.kept.check()
    documents = load_documents(inputs.files.kept.folder)
    _refuse(inputs, documents)
    artifact_id = made_by(work.job_id, "documents")
    with work.storage.new(artifact_id) as folder:
        found = _documents(folders_of(inputs.files), documents, inputs.domains)
        yield from keep_documents(found, folder, total_bytes=_about(inputs, documents), split_of=_Splits(documents))
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return _register(work, inputs, artifact_id, summary)


def _about(inputs: _Inputs, documents: ClusteredDocuments) -> int:
    """About how many bytes of text the clusters hold, for the progress."""
    share = float(np.isin(documents.labels_N, list(inputs.domains)).mean())
    return int(share * sum(source.num_bytes for source in inputs.files.sources))


class _Splits:
    """The split of a document by its id."""

    def __init__(self, documents: ClusteredDocuments) -> None:
        self._documents = documents

    def __call__(self, id: str) -> str:
        return self._documents.split(int(places_of(as_ids([id]), self._documents.ids_N)[0]))


def _documents(
    folders: Sequence[Path], documents: ClusteredDocuments, domains: Mapping[int, str]
) -> Iterator[Document]:
    """The documents of these clusters, each from the place it was clustered at. Raises CorpusError for missing ones."""
    is_wanted_N = np.isin(documents.labels_N, list(domains))
    for source, folder in enumerate(folders):
        for split_number, split in enumerate(SPLITS):
            rows = read_rows(folder / f"{split}.parquet")
            is_here_N = is_wanted_N & (documents.sources_N == source) & (documents.splits_N == split_number)
            while batch := list(islice(rows, BATCH)):
                places = places_of(as_ids([row["id"] for row in batch]), documents.ids_N)
                for row, place in zip(batch, places.tolist(), strict=True):
                    if place >= 0 and is_here_N[place]:
                        is_wanted_N[place] = False
                        domain = domains[int(documents.labels_N[place])]
                        yield Document(row["text"], domain, row["group"], row["source"])
    require_all(hex_of(documents.ids_N[is_wanted_N]), int(np.isin(documents.labels_N, list(domains)).sum()))


def _refuse(inputs: _Inputs, documents: ClusteredDocuments) -> None:
    sizes = documents.sizes(len(inputs.files.numbers))
    empty = [number for number in inputs.domains if not sizes[number]]
    if empty:
        problem = f"Every cluster must hold documents to be a domain, but {_numbers(empty)} of {len(sizes)} hold none."
        raise CorpusError(problem, "Merge them with another, or find fewer clusters.")
    if len(inputs.domains) > MAX_DOMAINS:
        problem = f"At most {MAX_DOMAINS} clusters can be made domains at once, but there are {len(inputs.domains)}."
        raise CorpusError(problem, "Find fewer clusters.")


def _register(work: Work, inputs: _Inputs, artifact_id: str, summary: Mapping[str, Any]) -> Register:
    licences = sorted({source.licence for source in inputs.files.sources} - {""})
    numbers = {name: number for number, name in inputs.domains.items()}

    def register(session: Session) -> dict[str, Any]:
        row = require_unedited(session, inputs.files.id, inputs.files.artifact_id)
        artifact = register_artifact(session, work.storage, artifact_id, "documents", job_id=work.job_id)
        card = register_corpus(
            session, name=inputs.corpus, role="train", source=f"clusters of {', '.join(_names(inputs))}",
            artifact=artifact, summary=summary, report={"clustering": inputs.files.name}, licence="; ".join(licences),
            clustering_id=row.id, job_id=work.job_id,
        )  # fmt: skip
        set_domains(session, row, {numbers[name]: domain_row(session, name).id for name in card.domains})
        return _result(inputs, f"{len(card.domains)} domains in the corpus {card.name}.")

    return register


def _result(inputs: _Inputs, sentence: str) -> dict[str, Any]:
    return {"clustering": inputs.files.name, "domains": list(inputs.domains.values()), "sentence": sentence}


def _names(inputs: _Inputs) -> list[str]:
    return [source.name for source in inputs.files.sources]


def _numbers(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
