"""The interval of a stored perplexity: what other text of the same kind would change, from its losses by block."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from sqlalchemy import select
from sqlalchemy.orm import Session, joinedload

from engine.errors import Problem
from engine.files import ArtifactRef
from workbench.answers.cards import EvaluationCard
from workbench.schema.tables import Domain, Evaluation, Expert
from workbench.store.storage import Storage

Bounds = tuple[float, float]


def intervals_of(session: Session, storage: Storage, scores: Iterable[EvaluationCard]) -> dict[tuple[str, str], Bounds]:
    """The 95 % intervals of these scores by expert and domain; nothing of a single block, or of files that are gone."""
    bounds = {}
    for score in scores:
        row = session.scalar(
            select(Evaluation)
            .join(Expert, Evaluation.expert_id == Expert.id)
            .join(Domain, Evaluation.domain_id == Domain.id)
            .options(joinedload(Evaluation.artifact))
            .where(Expert.name == score.expert, Domain.name == score.domain, Evaluation.split == score.split)
            .where(Evaluation.num_tokens == score.num_tokens, Evaluation.block_size == score.block_size)
        )
        if row is not None and (interval := _bounds(storage.kept(row.artifact), row.block_size)):
            bounds[score.expert, score.domain] = interval
    return bounds


@lru_cache(maxsize=1 << 14)
def _bounds(scores: ArtifactRef, block_size: int) -> Bounds | None:
    import numpy as np

    from engine.statistics.estimates import perplexity_bounds

    try:
        scores.check()
        logprobs_X = np.load(scores.folder / "logprobs.npy", mmap_mode="r", allow_pickle=False)
        counted = scores.folder / "counted.npy"
        counted_X = np.load(counted, allow_pickle=False) if counted.exists() else np.ones(len(logprobs_X), dtype=bool)
    except (Problem, OSError):
        return None
    return perplexity_bounds(-np.asarray(logprobs_X, dtype=np.float64), counted_X, block_size)
