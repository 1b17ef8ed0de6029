"""Find clusters, assign every document to one, compute the map and describe the clusters (C-BTM §2.1).

The fit, and each shard of documents, is an artifact with a key, so the first job that needs it makes it: a job of its
own on any worker, or the job that needs them all. An existing artifact is never made again.
"""

from __future__ import annotations

import hashlib
import math
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from engine.clusters.artifact import load_clustering, place
from engine.clusters.documents import (
    ClusteredDocuments,
    cut_documents,
    draw,
    join,
    load_documents,
    load_mapped,
    read_shard,
    training_ids,
    write_sample,
)
from engine.clusters.embedders.hidden_states import embedder_of
from engine.clusters.fitting import Fitted, fit, load_facts, require_enough, words_of
from engine.clusters.umap_projection import FEWEST, Map, project
from engine.errors import CorpusError, EngineError
from engine.events import Event, Progress, forward_progress
from engine.files import MANIFEST, ArtifactRef
from engine.text.split import count_documents
from engine.text.split_names import SPLITS
from jobs.attempt.work import Events, JobRun, Register, Work
from jobs.kinds.clusters.edits import facts, measures
from jobs.kinds.clusters.phase_seconds import assign_seconds, fit_seconds, map_seconds
from jobs.kinds.shared.phases import follow_phases
from jobs.kinds.shared.tokens import DomainFiles, read_domains
from workbench.formatting.clustering_warnings import clustering_warnings, unequal_lengths
from workbench.formatting.number_format import pluralize
from workbench.kinds.clusters import ClusterPart, FindClusters
from workbench.registry.clusters.clusterings import pieces_key, register_clustering
from workbench.registry.corpora import domain_row, training_domains
from workbench.registry.seeds import seed_row
from workbench.store import artifact_kinds
from workbench.store.artifacts import find_artifact

AnyClusteringSpec = FindClusters | ClusterPart


@dataclass(frozen=True)
class ClusteringInputs:
    """The inputs of all steps."""

    spec: AnyClusteringSpec
    domains: tuple[DomainFiles, ...]
    num_documents: int  # a document in two domains counts twice
    num_bytes: int
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
        """The key of a step's artifact, None: of the fit. It holds a domain's id, and is deleted with that domain."""
        return f"clusters:{self.domains[0].id}:{self._digest}:{'fit' if shard is None else shard}"

    def folders(self) -> list[Path]:
        """The folders of the documents, after they were verified."""
        return list(self.cut) or [domain.documents() for domain in self.domains]


def read_inputs(session: Session, work: Work, spec: AnyClusteringSpec) -> ClusteringInputs:
    """The current rows that a spec names. Without domains: all training domains that are not clusters themselves."""
    names = spec.domains or training_domains(session)
    if not names:
        raise CorpusError("Nothing to cluster: there is no training domain.", "Import a corpus first.")
    seed = seed_row(session, spec.seed_model) if spec.seed_model else None
    return ClusteringInputs(
        spec,
        read_domains(session, work.storage, names),
        sum(domain_row(session, name).num_documents for name in names),
        sum(domain_row(session, name).num_bytes for name in names),
        seed.id if seed else None,
        work.storage.kept(seed.artifact) if seed else None,
    )


def with_pieces(work: Work, inputs: ClusteringInputs) -> Events[ClusteringInputs]:
    """The inputs with long documents in pieces, where the spec asks for that; conversations are never cut."""
    length = inputs.spec.piece_length
    if length is None:
        return inputs
    folders = []
    for domain in inputs.domains:
        if domain.is_chat:
            folders.append(domain.documents())
            continue

        def fill(folder: Path, domain: DomainFiles = domain) -> Iterator[Event]:
            yield from cut_documents(domain.documents(), length, folder)

        key = pieces_key(domain.id, domain.data_sha256, length)
        folders.append((yield from work.cached_artifact(key, artifact_kinds.PIECES, fill)))
    num_documents = sum(count_documents(folder, split) for folder in folders for split in SPLITS)
    return replace(inputs, num_documents=num_documents, cut=tuple(folders))


def run_part(work: Work, spec: ClusterPart) -> JobRun:
    """Runs one step."""
    with work.reading() as session:
        inputs = read_inputs(session, work, spec)
    inputs = yield from with_pieces(work, inputs)
    step = fit_clusters(work, inputs) if spec.shard is None else assign_shard(work, inputs, spec.shard)
    shards = [] if spec.shard is None else [spec.shard]
    yield from follow_phases(step, expected_phases(work, inputs, shards))
    return {"clustering": spec.name, "shard": spec.shard}


def expected_phases(work: Work, inputs: ClusteringInputs, shards: Sequence[int]) -> dict[str, float]:
    """The seconds of the fit and of the assignment of these shards; nothing for what another job has made."""
    with work.reading() as session:
        needs_fit = find_artifact(session, inputs.key(None)) is None
        missing = [shard for shard in shards if find_artifact(session, inputs.key(shard)) is None]
    share = len(missing) / inputs.num_shards
    size = math.ceil(inputs.num_documents * share), math.ceil(inputs.num_bytes * share)
    fit = fit_seconds(inputs.spec, inputs.num_documents, inputs.num_bytes) if needs_fit else {}
    return {**fit, **assign_seconds(inputs.spec, *size)} if missing else fit


def fit_clusters(work: Work, inputs: ClusteringInputs) -> Events[Path]:
    """The folder of the fitted clusters."""
    spec, device = inputs.spec, work.settings.device

    def fill(folder: Path) -> Iterator[Event]:
        folders = inputs.folders()
        yield Progress(0, None, "documents", "listing documents")
        ids_N = training_ids(folders)
        require_enough(len(ids_N), spec.num_clusters)
        sample = work.folder / "sample.parquet"
        yield from write_sample(folders, draw(ids_N, spec.sample_size, spec.seed), sample)
        embedder = None
        if inputs.seed is not None:
            inputs.seed.check()
            embedder = embedder_of(inputs.seed.folder, spec.max_tokens, device)
        clusters = yield from fit(sample, spec.words, spec.clusters, embedder)
        clusters.save(folder)

    return (yield from work.cached_artifact(inputs.key(None), artifact_kinds.CLUSTERING_PART, fill))


def assign_shard(work: Work, inputs: ClusteringInputs, shard: int) -> Events[Path]:
    """The folder of one shard's documents with their clusters."""
    if shard >= inputs.num_shards:
        problem = f"The text now has {inputs.num_shards} shards, so shard {shard} does not exist."
        raise EngineError(problem, "The text has changed since the job was created: cluster again.")
    fit_folder = yield from fit_clusters(work, inputs)

    def fill(folder: Path) -> Iterator[Event]:
        clustering = load_clustering(fit_folder, inputs.seed, work.settings.device)
        documents_of_shard = read_shard(inputs.folders(), shard, inputs.num_shards)
        map_share = inputs.spec.map_size / inputs.num_documents
        documents, mapped = yield from place(
            clustering, documents_of_shard, -(-inputs.num_documents // inputs.num_shards), map_share
        )
        documents.save(folder)
        mapped.save(folder)

    return (yield from work.cached_artifact(inputs.key(shard), artifact_kinds.CLUSTERING_PART, fill))


def forget_parts(session: Session, inputs: ClusteringInputs) -> None:
    """Deletes the rows of all steps, after their contents were joined into one clustering."""
    for shard in [None, *range(inputs.num_shards)]:
        row = find_artifact(session, inputs.key(shard))
        if row is not None:
            session.delete(row)


def run(work: Work, spec: FindClusters) -> JobRun:
    """Runs the steps that no other job has run, and joins their results in one folder."""
    with work.reading() as session:
        inputs = read_inputs(session, work, spec)
    inputs = yield from with_pieces(work, inputs)
    phases = expected_phases(work, inputs, range(inputs.num_shards)) | map_seconds(spec, inputs.num_documents)
    return (yield from follow_phases(_find(work, inputs), phases))


def _find(work: Work, inputs: ClusteringInputs) -> JobRun:
    """Fits, assigns and draws, and gives what registers the clustering."""
    fit_folder = yield from fit_clusters(work, inputs)
    parts = []
    for shard in range(inputs.num_shards):
        folder = yield from assign_shard(work, inputs, shard)
        parts.append((load_documents(folder), load_mapped(folder)))
    documents, mapped = join(parts)
    chart = None
    if len(mapped.documents_M) >= FEWEST:  # else no map was requested, or there are too few documents
        chart = yield from forward_progress(project(mapped.vectors_MD, seed=inputs.spec.seed))
    artifact_id = work.stable_id("clustering")
    with work.storage.new(artifact_id) as folder:
        shutil.copytree(fit_folder, folder, ignore=shutil.ignore_patterns(MANIFEST), dirs_exist_ok=True)
        documents.save(folder)
        if chart:
            chart.save(folder)
            replace(mapped, vectors_MD=mapped.vectors_MD[:, :0]).save(folder)  # the map needs no vectors now
    return _register(work, inputs, fit_folder, artifact_id, documents, chart)


def _register(
    work: Work,
    inputs: ClusteringInputs,
    fit_folder: Path,
    artifact_id: str,
    documents: ClusteredDocuments,
    chart: Map | None,
) -> Register:
    spec = inputs.spec
    clustering = load_clustering(fit_folder, inputs.seed)
    clusters = facts(Fitted(clustering, words_of(clustering, fit_folder)), documents)
    metrics = {
        **measures(documents, spec.num_clusters, [domain.name for domain in inputs.domains]),
        **asdict(load_facts(fit_folder)),
        "costs": list(clustering.clusters.costs),
        "num_duplicates": inputs.num_documents - len(documents),
        "map": chart
        and {
            "num_points": len(chart.coordinates_N2),
            "num_fitted": int(chart.is_fitted_N.sum()),
            "seed": chart.seed,
        },
    }
    embedder = {"kind": spec.embedder, "sha256": clustering.embedder.sha256, "words": asdict(spec.words)}
    config = {"clusters": asdict(spec.clusters), "embedder": {**embedder, "max_tokens": spec.max_tokens}}
    sources = [
        {"id": domain.id, "name": domain.name, "data_sha256": domain.data_sha256}
        | ({"piece_length": spec.piece_length} if spec.piece_length and not domain.is_chat else {})
        for domain in inputs.domains
    ]

    def register(session: Session) -> dict[str, Any]:
        artifact = work.register_artifact(session, artifact_id, artifact_kinds.CLUSTERING)
        card = register_clustering(
            session,
            id=work.stable_id("row"),
            name=spec.name,
            config=config,
            metrics=metrics,
            clusters=clusters,
            sources=sources,
            num_fitted=len(clustering.document_ids),
            artifact=artifact,
            seed_id=inputs.seed_id,
            job_id=work.job_id,
        )
        forget_parts(session, inputs)
        return _result(card.name, metrics, len(documents), spec.piece_length)

    return register


def _result(name: str, metrics: dict[str, Any], num_documents: int, piece_length: int | None) -> dict[str, Any]:
    sizes, blank, num_bytes = metrics["sizes"], metrics["num_blank"], metrics["num_bytes"]
    span = f" of {min(sizes):,} to {max(sizes):,}" if len(sizes) > 1 else ""
    sentence = f"{pluralize(num_documents, 'document')} in {pluralize(len(sizes), 'cluster')}{span}."
    if blank:
        sentence += f" {blank:,} of them contain no known word and share one position."
    if metrics["num_duplicates"]:
        sentence += f" {metrics['num_duplicates']:,} that are in several domains count once."
    if piece_length:
        sentence += f" Longer ones were cut into pieces of at most {piece_length:,} characters."
    least, most = min(num_bytes), max(num_bytes)
    lengths = f"{least:,} to {most:,} bytes of text" if least < most else f"{most:,} bytes"
    return {
        "clustering": name,
        "num_documents": num_documents,
        "num_blank": blank,
        "sizes": sizes,
        "sentence": " ".join([sentence, *clustering_warnings(metrics)]),
        "lengths": " ".join([f"A cluster has {lengths}.", *unequal_lengths(metrics)]),
    }
