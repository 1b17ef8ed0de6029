"""The loss of an expert on each held-out document of a clustering, from stored scores: no model is read.

Shapes: N documents of the clustering, X scored tokens of a domain's split.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select
from sqlalchemy.orm import Session, joinedload

from engine.text.split_names import HELD_OUT_SPLITS, HeldOutSplit
from workbench.analysis.scores import load, places
from workbench.registry.clusters.clusterings import SourceFiles, clustering_files
from workbench.registry.experts import expert_row
from workbench.registry.tokenizers import tokens_key
from workbench.schema.tables import Domain, Evaluation, Expert
from workbench.store.artifacts import find_artifact
from workbench.store.storage import Storage


@dataclass(frozen=True)
class DocumentLosses:
    """Nats per token of each document; NaN where none of its tokens was scored."""

    losses_N: NDArray[np.float32]

    @property
    def num_scored(self) -> int:
        """The number of documents with a loss."""
        return int(np.isfinite(self.losses_N).sum())


def experts_with_scores(session: Session, domains: list[str]) -> list[str]:
    """The experts that were scored on held-out text of any of these domains, by name."""
    query = select(Expert.name).join(Evaluation, Evaluation.expert_id == Expert.id).join(Evaluation.domain)
    return list(session.scalars(query.where(Domain.name.in_(domains)).distinct().order_by(Expert.name)))


def document_losses(session: Session, storage: Storage, clustering: str, expert: str) -> DocumentLosses:
    """The mean loss of an expert over the scored tokens of each document.

    Of each domain and split the scores of the most tokens count. Conversations have none: their blocks hold several.
    """
    from engine.clusters.documents import load_documents
    from engine.clusters.sources import as_ids, places_of
    from engine.text.parquet_rows import read_ids

    files, row = clustering_files(session, storage, clustering), expert_row(session, expert)
    documents = load_documents(files.kept.folder)
    losses_N = np.full(len(documents), np.nan, dtype=np.float32)
    for source in files.sources:
        for split in HELD_OUT_SPLITS:
            means = _means(session, storage, source, row, split)
            if means is None or source.kept is None:
                continue
            path = source.kept.folder / source.folder / f"{split}.parquet"
            ids = as_ids([id for some in read_ids(path) for id in some])
            numbers = places_of(ids, documents.ids_N)
            is_scored = np.isfinite(means) & (numbers >= 0)
            losses_N[numbers[is_scored]] = means[is_scored]
    return DocumentLosses(losses_N)


def _means(
    session: Session, storage: Storage, source: SourceFiles, expert: Expert, split: HeldOutSplit
) -> NDArray[np.float32] | None:
    """The mean loss of every document of a split, in its order; None without scores or tokens."""
    from engine.text.blocks import Tokens

    evaluation = session.scalar(
        select(Evaluation)
        .join(Evaluation.domain)
        .options(joinedload(Evaluation.artifact))
        .where(Domain.name == source.name, Domain.format == "text")
        .where(Evaluation.expert_id == expert.id, Evaluation.split == split)
        .order_by(Evaluation.num_tokens.desc())
        .limit(1)
    )
    if evaluation is None:
        return None
    artifact = find_artifact(session, tokens_key(evaluation.domain_id, expert.tokenizer_sha256))
    if artifact is None:
        return None
    scores_EX, block_size = load(storage, [evaluation])
    starts, _ = places(storage, evaluation)
    tokens = Tokens.open(storage.path(artifact.id), split)
    positions_X = (starts[:, None] + 1 + np.arange(block_size)).ravel()[: scores_EX.shape[1]]
    documents_X = np.searchsorted(tokens.starts, positions_X, side="right") - 1
    counts = np.bincount(documents_X, minlength=len(tokens.starts))
    sums = np.bincount(documents_X, weights=-scores_EX[0].double().numpy(), minlength=len(tokens.starts))
    with np.errstate(invalid="ignore"):
        means: NDArray[np.float32] = np.where(counts > 0, sums / counts, np.nan).astype(np.float32)
    return means
