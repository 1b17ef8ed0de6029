"""The parts of finding clusters: the fit on a sample, then shards of documents put into clusters.

Each part is an artifact found by its key, so whoever comes first makes it: a job of its own on any worker, or the job
that needs them all. A part that is there is never made again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from engine.clusters.artifact import load_clustering
from engine.clusters.assignment import place
from engine.clusters.documents import ClusteredDocuments, Mapped, load_documents, load_mapped
from engine.clusters.embedders.base import AnyEmbedder
from engine.clusters.embedders.hidden_states import HiddenStateEmbedder
from engine.clusters.fitting import fit, require_enough
from engine.clusters.sources import draw, read_shard, training_ids, write_sample
from engine.errors import CorpusError, EngineError
from engine.events import Event, Progress
from engine.files import ArtifactRef
from engine.models.families import load_model
from engine.text.tokenizer import load_tokenizer
from jobs.attempt.work import Register, Work
from jobs.kinds.shared.artifact_cache import made_once
from jobs.kinds.shared.tokens import DomainFiles, domain_files
from workbench.kinds.clusters.cluster_part import ClusterPart
from workbench.kinds.clusters.find_clusters import FindClusters
from workbench.registry.corpora import domain_row, training_domains
from workbench.registry.seeds import seed_row
from workbench.store.artifacts import find_artifact

Wish = FindClusters | ClusterPart


@dataclass(frozen=True)
class Inputs:
    """What the parts are made from."""

    wish: Wish
    domains: tuple[DomainFiles, ...]
    num_documents: int  # those that two domains hold count twice
    seed_id: str | None
    seed: ArtifactRef | None

    @property
    def num_shards(self) -> int:
        return max(1, -(-self.num_documents // self.wish.shard_size))

    @cached_property
    def _digest(self) -> str:
        wish = self.wish.model_dump_json(exclude={"kind", "shard", "domains"})
        made_from = [wish, str(self.seed_id), *(f"{one.id} {one.data_sha256}" for one in self.domains)]
        return hashlib.sha256("\n".join(made_from).encode()).hexdigest()

    def key(self, shard: int | None) -> str:
        """What names a part; it holds the id of a domain, with which it goes."""
        return f"clusters:{self.domains[0].id}:{self._digest}:{'fit' if shard is None else shard}"

    def folders(self) -> list[Path]:
        """The folders of the documents, once they are proved whole."""
        return [domain.documents() for domain in self.domains]


def read_inputs(session: Session, work: Work, wish: Wish) -> Inputs:
    """What a wish names, as it is now; without domains all training ones that are no clusters themselves."""
    names = wish.domains or training_domains(session)
    if not names:
        raise CorpusError("There must be text to cluster, but there is no training domain.", "Import some text.")
    seed = seed_row(session, wish.seed_model) if wish.seed_model else None
    return Inputs(
        wish,
        tuple(domain_files(session, work.storage, name) for name in names),
        sum(domain_row(session, name).num_documents for name in names),
        seed.id if seed else None,
        work.storage.kept(seed.artifact) if seed else None,
    )


def run(work: Work, spec: ClusterPart) -> Generator[Event, None, Register]:
    """One part."""
    with work.reading() as session:
        inputs = read_inputs(session, work, spec)
    if spec.shard is None:
        yield from fitted(work, inputs)
    else:
        yield from placed(work, inputs, spec.shard)

    def register(_: Session) -> dict[str, Any]:
        return {"clustering": spec.name, "shard": spec.shard}

    return register


def fitted(work: Work, inputs: Inputs) -> Generator[Event, None, Path]:
    """The folder of the fitted clusters."""
    wish = inputs.wish

    def fill(folder: Path) -> Iterator[Event]:
        folders = inputs.folders()
        yield Progress(0, None, "documents", "listing what there is")
        ids_N = training_ids(folders)
        require_enough(len(ids_N), wish.num_clusters)
        sample = work.folder / "sample.parquet"
        yield from write_sample(folders, draw(ids_N, wish.sample_size, wish.seed), sample)
        found = yield from fit(sample, wish.words, wish.clusters, _reader(inputs))
        found.save(folder)

    return (yield from made_once(work, inputs.key(None), "clusters-part", fill))


def placed(work: Work, inputs: Inputs, shard: int) -> Generator[Event, None, Path]:
    """The folder of one shard's documents, each in its cluster."""
    if shard >= inputs.num_shards:
        problem = f"A shard's number must be below {inputs.num_shards}, but is {shard}."
        raise EngineError(problem, "The text has changed since it was asked for: cluster again.")
    fit_folder = yield from fitted(work, inputs)

    def fill(folder: Path) -> Iterator[Event]:
        clustering = load_clustering(fit_folder, inputs.seed)
        found = read_shard(inputs.folders(), shard, inputs.num_shards)
        map_share = inputs.wish.map_size / inputs.num_documents
        documents, mapped = yield from place(
            clustering, found, -(-inputs.num_documents // inputs.num_shards), map_share
        )
        documents.save(folder)
        mapped.save(folder)

    return (yield from made_once(work, inputs.key(shard), "clusters-part", fill))


def open_part(folder: Path) -> tuple[ClusteredDocuments, Mapped]:
    """What lies in the folder of a shard."""
    return load_documents(folder), load_mapped(folder)


def forget_parts(session: Session, inputs: Inputs) -> None:
    """Deletes the rows of all parts, once the whole holds what was in them."""
    for shard in [None, *range(inputs.num_shards)]:
        row = find_artifact(session, inputs.key(shard))
        if row is not None:
            session.delete(row)


def _reader(inputs: Inputs) -> AnyEmbedder | None:
    if inputs.seed is None:
        return None
    inputs.seed.check()
    folder = inputs.seed.folder
    return HiddenStateEmbedder(load_model(folder), load_tokenizer(folder), inputs.wish.max_tokens)
