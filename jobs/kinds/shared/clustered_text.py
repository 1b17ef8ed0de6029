"""The documents of a clustering, read from their domains, each in the split that it was clustered in."""

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

from engine.clusters.documents import ClusteredDocuments
from engine.clusters.sources import as_ids, hex_of, places_of, require_all
from engine.errors import CorpusError
from engine.text.corpus import Document
from engine.text.parquet_rows import read_rows
from engine.text.split import store_documents
from engine.text.split_names import SPLITS, Split
from jobs.attempt.work import Events, Work
from workbench.formatting.shell_command import shell_command
from workbench.registry.cards import CorpusCard
from workbench.registry.clusters.clusterings import ClusteringFiles
from workbench.registry.corpora import register_corpus
from workbench.store import artifact_kinds


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


BATCH = 1024  # rows looked up at once
NONE = -1


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
                places = places_of(as_ids([row["id"] for row in batch]), documents.ids_N)
                for row, place in zip(batch, places.tolist(), strict=True):
                    if place >= 0 and is_in_file_N[place]:
                        is_left_N[place] = False
                        domain = domains[int(numbers_N[place])]
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
