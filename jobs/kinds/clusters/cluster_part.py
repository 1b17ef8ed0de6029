"""The steps of finding clusters: fit them on a sample, then assign shards of documents to them.

Each step writes an artifact with a key, so the first job that needs it makes it: a job of its own on any worker, or
the job that needs them all. An existing artifact is never made again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from engine.clusters.artifact import load_clustering, place
from engine.clusters.documents import ClusteredDocuments, Mapped, load_documents, load_mapped
from engine.clusters.embedders.base import AnyEmbedder
from engine.clusters.embedders.hidden_states import embedder_of
from engine.clusters.fitting import fit, require_enough
from engine.clusters.sources import cut_documents, draw, read_shard, training_ids, write_sample
from engine.errors import CorpusError, EngineError
from engine.events import Event, Progress
from engine.files import ArtifactRef
from engine.text.split import count_documents
from engine.text.split_names import SPLITS
from jobs.attempt.work import Register, Work
from jobs.kinds.shared.artifact_cache import cached_artifact
from jobs.kinds.shared.tokens import DomainFiles, domain_files
from workbench.kinds.clusters import ClusterPart, FindClusters
from workbench.registry.clusters.clusterings import pieces_key
from workbench.registry.corpora import domain_row, training_domains
from workbench.registry.seeds import seed_row
from workbench.store import artifact_kinds
from workbench.store.artifacts import find_artifact

AnyClusteringSpec = FindClusters | ClusterPart


@dataclass(frozen=True)
class Inputs:
    """The inputs of all steps."""

    spec: AnyClusteringSpec
    domains: tuple[DomainFiles, ...]
    num_documents: int  # a document in two domains counts twice
    seed_id: str | None
    seed: ArtifactRef | None
    cut: tuple[Path, ...] = ()  # the folders of the documents with long ones in pieces; empty: they are not cut

    @property
    def num_shards(self) -> int:
        return max(1, -(-self.num_documents // self.spec.shard_size))

    @cached_property
    def _digest(self) -> str:
        options = self.spec.model_dump_json(exclude={"kind", "shard", "domains"})
        made_from = [options, str(self.seed_id), *(f"{one.id} {one.data_sha256}" for one in self.domains)]
        return hashlib.sha256("\n".join(made_from).encode()).hexdigest()

    def key(self, shard: int | None) -> str:
        """The key of a step's artifact. It holds the id of a domain, so it is deleted with that domain."""
        return f"clusters:{self.domains[0].id}:{self._digest}:{'fit' if shard is None else shard}"

    def folders(self) -> list[Path]:
        """The folders of the documents, after they were verified."""
        return list(self.cut) or [domain.documents() for domain in self.domains]


def read_inputs(session: Session, work: Work, spec: AnyClusteringSpec) -> Inputs:
    """The current rows that a spec names. Without domains: all training domains that are not clusters themselves."""
    names = spec.domains or training_domains(session)
    if not names:
        raise CorpusError("Nothing to cluster: there is no training domain.", "Import a corpus first.")
    seed = seed_row(session, spec.seed_model) if spec.seed_model else None
    return Inputs(
        spec,
        tuple(domain_files(session, work.storage, name) for name in names),
        sum(domain_row(session, name).num_documents for name in names),
        seed.id if seed else None,
        work.storage.kept(seed.artifact) if seed else None,
    )


def with_pieces(work: Work, inputs: Inputs) -> Generator[Event, None, Inputs]:
    """The inputs with long documents in pieces, where the spec asks for that; conversations are never cut."""
    length = inputs.spec.piece_length
    if length is None:
        return inputs
    folders = []
    for domain in inputs.domains:
        if domain.is_chat:
            folders.append(domain.documents())
            continue
        key = pieces_key(domain.id, domain.data_sha256, length)
        folders.append((yield from cached_artifact(work, key, artifact_kinds.PIECES, partial(_cut, domain, length))))
    num_documents = sum(count_documents(folder, split) for folder in folders for split in SPLITS)
    return replace(inputs, num_documents=num_documents, cut=tuple(folders))


def _cut(domain: DomainFiles, length: int, folder: Path) -> Iterator[Event]:
    yield from cut_documents(domain.documents(), length, folder)


def run(work: Work, spec: ClusterPart) -> Generator[Event, None, Register]:
    """Runs one step."""
    with work.reading() as session:
        inputs = read_inputs(session, work, spec)
    inputs = yield from with_pieces(work, inputs)
    if spec.shard is None:
        yield from fitted(work, inputs)
    else:
        yield from placed(work, inputs, spec.shard)

    def register(_: Session) -> dict[str, Any]:
        return {"clustering": spec.name, "shard": spec.shard}

    return register


def fitted(work: Work, inputs: Inputs) -> Generator[Event, None, Path]:
    """The folder of the fitted clusters."""
    spec = inputs.spec

    def fill(folder: Path) -> Iterator[Event]:
        folders = inputs.folders()
        yield Progress(0, None, "documents", "listing documents")
        ids_N = training_ids(folders)
        require_enough(len(ids_N), spec.num_clusters)
        sample = work.folder / "sample.parquet"
        yield from write_sample(folders, draw(ids_N, spec.sample_size, spec.seed), sample)
        clusters = yield from fit(sample, spec.words, spec.clusters, _reader(inputs, work.settings.device))
        clusters.save(folder)

    return (yield from cached_artifact(work, inputs.key(None), artifact_kinds.CLUSTERING_PART, fill))


def placed(work: Work, inputs: Inputs, shard: int) -> Generator[Event, None, Path]:
    """The folder of one shard's documents with their clusters."""
    if shard >= inputs.num_shards:
        problem = f"There is no shard {shard}: the text now has {inputs.num_shards} shards."
        raise EngineError(problem, "The text has changed since the job was created: cluster again.")
    fit_folder = yield from fitted(work, inputs)

    def fill(folder: Path) -> Iterator[Event]:
        clustering = load_clustering(fit_folder, inputs.seed, work.settings.device)
        documents_of_shard = read_shard(inputs.folders(), shard, inputs.num_shards)
        map_share = inputs.spec.map_size / inputs.num_documents
        documents, mapped = yield from place(
            clustering, documents_of_shard, -(-inputs.num_documents // inputs.num_shards), map_share
        )
        documents.save(folder)
        mapped.save(folder)

    return (yield from cached_artifact(work, inputs.key(shard), artifact_kinds.CLUSTERING_PART, fill))


def open_part(folder: Path) -> tuple[ClusteredDocuments, Mapped]:
    """Loads the documents of a shard's folder, and their vectors for the map."""
    return load_documents(folder), load_mapped(folder)


def forget_parts(session: Session, inputs: Inputs) -> None:
    """Deletes the rows of all steps, after their contents were joined into one clustering."""
    for shard in [None, *range(inputs.num_shards)]:
        row = find_artifact(session, inputs.key(shard))
        if row is not None:
            session.delete(row)


def _reader(inputs: Inputs, device: str) -> AnyEmbedder | None:
    if inputs.seed is None:
        return None
    inputs.seed.check()
    return embedder_of(inputs.seed.folder, inputs.spec.max_tokens, device)
