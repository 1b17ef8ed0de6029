"""Makes domains of the documents of a clustering, each in the split that it was clustered in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from engine.clusters.documents import (
    ClusteredDocuments,
    as_ids,
    hex_of,
    load_documents,
    load_mapped,
    places_of,
    require_all,
)
from engine.clusters.map_polygons import lies_in_any
from engine.clusters.umap_projection import load_map
from engine.errors import CorpusError, EngineError
from engine.events import Progress
from engine.text.corpus import Document
from engine.text.parquet_rows import read_rows
from engine.text.split import MAX_DOMAINS, store_documents
from engine.text.split_names import SPLITS, Split
from jobs.attempt.work import Events, JobRun, Work
from workbench.answers.cards import CorpusCard
from workbench.formatting.number_format import pluralize
from workbench.formatting.shell_command import shell_command
from workbench.kinds.clusters import MakeClusterDomains
from workbench.kinds.data import MakeDomain
from workbench.registry.clusters.cluster_routing import corpus_name, domain_names, set_domains
from workbench.registry.clusters.clusterings import ClusteringFiles, clustering_files, clustering_row, require_unedited
from workbench.registry.corpora import domain_row, register_corpus
from workbench.schema.names import ensure_free
from workbench.schema.tables import Domain
from workbench.store import artifact_kinds

BATCH = 1024  # rows looked up at once
NONE = -1  # the number of a document that goes into no domain


def make_domain(work: Work, spec: MakeDomain) -> JobRun:
    """Makes one corpus with one domain: the documents in the given areas and clusters."""
    with work.reading() as session:
        ensure_free(session, Domain, spec.name)
        files = clustering_files(session, work.storage, spec.clustering)
    yield Progress(0, None, "documents", "listing chosen documents")
    files.kept.check()
    documents = load_documents(files.kept.folder)
    is_chosen_N = _choose(spec, files, documents)
    numbers_N = np.where(is_chosen_N, 0, NONE).astype(np.int32)
    chosen = yield from store_chosen(work, files, documents, numbers_N, {0: spec.name})
    counts = {split: counts["documents"] for split, counts in chosen.summary["domains"][0]["splits"].items()}
    num_documents, held_out = int(is_chosen_N.sum()), counts["dev"] + counts["test"]

    def register(session: Session) -> dict[str, Any]:
        chosen.register(session, work, name=spec.name, source=f"chosen in the clustering {files.name}")
        return {
            "domain": spec.name,
            "num_documents": num_documents,
            "sentence": f"{pluralize(num_documents, 'document')} in the domain {spec.name}, {held_out:,} held out.",
        }

    return register


def _choose(spec: MakeDomain, files: ClusteringFiles, documents: ClusteredDocuments) -> NDArray[np.bool_]:
    """Which documents are chosen. Raises CorpusError where none is, and for areas in a clustering without a map."""
    is_chosen_N = np.ones(len(documents), dtype=np.bool_)
    if spec.areas:
        folder = files.kept.folder
        if not (folder / "map.safetensors").is_file():
            problem = f"“{spec.clustering}” has no map, so areas cannot be used."
            raise CorpusError(problem, "Choose clusters, or cluster again with a map size above 0.")
        is_inside_M = lies_in_any(load_map(folder).coordinates_N2, spec.corners)
        is_chosen_N[:] = False
        is_chosen_N[load_mapped(folder).documents_M[is_inside_M]] = True
    if spec.clusters:
        is_chosen_N &= np.isin(documents.labels_N, [files.number(cluster) for cluster in spec.clusters])
    if not is_chosen_N.any():
        raise CorpusError("The selection contains no document.", "Draw a larger area on the map.")
    return is_chosen_N


def make_cluster_domains(work: Work, spec: MakeClusterDomains) -> JobRun:
    """Makes one corpus with a domain for each cluster that needs one."""
    with work.reading() as session:
        row = clustering_row(session, spec.clustering)
        files = clustering_files(session, work.storage, spec.clustering)
        corpus, domains = corpus_name(session, row), domain_names(session, row)
    yield Progress(0, None, "documents", "listing documents")
    names = list(domains.values())
    if spec.domains and spec.domains != names:
        raise EngineError(
            f"The clusters of “{spec.clustering}” have changed since this job was created.",
            "Submit the plan again.",
        )
    result = {"clustering": files.name, "domains": names}
    if not domains:
        return {**result, "sentence": "Every cluster has its domain already."}
    files.kept.check()
    documents = load_documents(files.kept.folder)
    _require_possible(files, list(domains), documents)
    numbers_N = np.where(np.isin(documents.labels_N, list(domains)), documents.labels_N, NONE)
    chosen = yield from store_chosen(work, files, documents, numbers_N, domains)
    numbers, sources = {name: number for number, name in domains.items()}, [source.name for source in files.sources]

    def register(session: Session) -> dict[str, Any]:
        row = require_unedited(session, files.id, files.artifact_id)
        source = f"clusters of {', '.join(sources)}"
        card = chosen.register(session, work, name=corpus, source=source, of_clusters=True)
        set_domains(session, row, {numbers[name]: domain_row(session, name).id for name in card.domains})
        return {**result, "sentence": f"{pluralize(len(card.domains), 'domain')} in the corpus {card.name}."}

    return register


def _require_possible(files: ClusteringFiles, clusters: Sequence[int], documents: ClusteredDocuments) -> None:
    sizes = documents.sizes(len(files.numbers))
    empty = [str(number) for number in clusters if not sizes[number]]
    if empty:
        problem = f"A domain needs documents. Of the {len(sizes)} clusters these are empty: {', '.join(empty)}."
        raise CorpusError(problem, "Merge them with another cluster, or find fewer clusters.")
    if len(clusters) > MAX_DOMAINS:
        problem = f"There are {len(clusters)} clusters; at most {MAX_DOMAINS} can become domains together."
        raise CorpusError(problem, "Find fewer clusters.")


def folders_of(files: ClusteringFiles) -> list[Path]:
    """The verified folder of each source, in order. Raises CorpusError if the text of one is missing or changed."""
    gone = [source.name for source in files.sources if source.kept is None]
    if gone:
        names = ", ".join(f"“{name}”" for name in gone)
        raise CorpusError(
            f"The text of {names} was deleted or changed after it was clustered.",
            f"List the documents with `{shell_command('cluster', 'changes', files.name)}`, then import them or cluster "
            "again.",
        )
    folders = []
    for source in files.sources:
        assert source.kept is not None
        source.kept.check()
        folders.append(source.kept.folder / source.folder)
    return folders


def read_documents(
    folders: Sequence[Path], documents: ClusteredDocuments, numbers_N: NDArray[np.int32], domains: Mapping[int, str]
) -> Iterator[Document]:
    """Yields the documents whose number is a key of `domains` (NONE leaves one out), from their clustered positions.

    Raises CorpusError if a document is missing.
    """
    is_left_N = numbers_N != NONE
    total = int(is_left_N.sum())
    for source, folder in enumerate(folders):
        for split_number, split in enumerate(SPLITS):
            rows = read_rows(folder / f"{split}.parquet")
            is_in_file_N = is_left_N & (documents.sources_N == source) & (documents.splits_N == split_number)
            while batch := list(islice(rows, BATCH)):
                indices = places_of(as_ids([row["id"] for row in batch]), documents.ids_N)
                for row, index in zip(batch, indices.tolist(), strict=True):
                    if index >= 0 and is_in_file_N[index]:
                        is_left_N[index] = False
                        domain = domains[int(numbers_N[index])]
                        yield Document(row["text"], domain, row["group"], row["source"], row.get("messages"))
    require_all(hex_of(documents.ids_N[is_left_N]), total)


@dataclass(frozen=True)
class ChosenDocuments:
    """Documents of a clustering that were stored as domains: the artifact, and what the registry keeps of it."""

    files: ClusteringFiles
    artifact_id: str
    summary: dict[str, Any]

    def register(
        self, session: Session, work: Work, *, name: str, source: str, of_clusters: bool = False
    ) -> CorpusCard:
        """Registers them as a corpus to train on, with the licences of all texts that were clustered."""
        return register_corpus(
            session,
            name=name,
            role="train",
            source=source,
            artifact=work.register_artifact(session, self.artifact_id, artifact_kinds.DOCUMENTS),
            summary=self.summary,
            report={"clustering": self.files.name},
            licence="; ".join(sorted({source.licence for source in self.files.sources} - {""})),
            clustering_id=self.files.id if of_clusters else None,
            job_id=work.job_id,
        )


def store_chosen(
    work: Work,
    files: ClusteringFiles,
    documents: ClusteredDocuments,
    numbers_N: NDArray[np.int32],
    domains: Mapping[int, str],
) -> Events[ChosenDocuments]:
    """Stores documents as domains; see `read_documents`. Each stays in the split that it was clustered in."""

    def split_of(id: str) -> Split:
        return documents.split(int(places_of(as_ids([id]), documents.ids_N)[0]))

    artifact_id = work.stable_id("documents")
    with work.storage.new(artifact_id) as folder:
        chosen = read_documents(folders_of(files), documents, numbers_N, domains)
        about = int((numbers_N != NONE).mean() * sum(source.num_bytes for source in files.sources))
        yield from store_documents(chosen, folder, total_bytes=about, split_of=split_of)
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return ChosenDocuments(files, artifact_id, summary)
