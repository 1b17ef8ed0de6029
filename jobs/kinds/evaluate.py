"""Score the experts of a mixture on held-out text: every token's log-likelihood is kept, none is computed twice."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.device import choose_device
from engine.events import Event, Progress
from engine.files import Kept
from engine.models.demix import DemixModel
from engine.models.demix_files import load_demix
from engine.scores import score_tokens
from engine.text.blocks import Tokens
from engine.text.tokenizer import load_tokenizer
from engine.training.loop import require_context
from jobs.kinds.ids import made_by
from jobs.kinds.tokens import DomainFiles, domain_files, pack
from jobs.work import Register, Work
from workbench.services.artifacts import register_artifact
from workbench.services.evaluations import register_evaluation
from workbench.services.mixtures import mixture_row
from workbench.specs import Evaluate
from workbench.tables import Domain, Evaluation, Expert


@dataclass(frozen=True)
class _Inputs:
    base: Kept
    experts: dict[str, Kept]  # by id
    domains: tuple[DomainFiles, ...]


@dataclass(frozen=True)
class _Score:
    """One expert on one domain: what to score, and where the answer goes."""

    expert_id: str
    domain: DomainFiles
    tokens: NDArray[Any]
    artifact_id: str


def run(work: Work, spec: Evaluate) -> Generator[Event, None, Register]:
    """One folder of scores per expert and domain; a resumed job keeps those that are whole."""
    with work.reading() as session:
        inputs = _read(session, work, spec)
    inputs.base.check()
    tokenizer = load_tokenizer(inputs.base.folder)
    texts = {}
    for domain in inputs.domains:
        folder = yield from pack(work, domain, tokenizer)
        texts[domain] = Tokens.open(folder, spec.split).array[: spec.max_tokens + 1]
    with work.reading() as session:
        todo = _missing(session, work, spec, inputs, texts)
    if todo:
        model = load_demix(inputs.base, inputs.experts).to(choose_device(work.settings.device))
        require_context(model, spec.block_size)
        yield from _score_all(work, model, todo, spec.block_size)
    return _register(work, spec, todo)


def _read(session: Session, work: Work, spec: Evaluate) -> _Inputs:
    experts = [member.expert for member in mixture_row(session, spec.mixture).members]
    names = spec.domains or list(session.scalars(select(Domain.name).order_by(Domain.name)))
    return _Inputs(
        base=work.storage.kept(experts[0].base),
        experts={expert.id: work.storage.kept(expert.artifact) for expert in experts},
        domains=tuple(domain_files(session, work.storage, name) for name in names),
    )


def _missing(
    session: Session, work: Work, spec: Evaluate, inputs: _Inputs, texts: dict[DomainFiles, NDArray[Any]]
) -> list[_Score]:
    done = {
        (row.expert_id, row.domain_id, row.num_tokens)
        for row in session.scalars(
            select(Evaluation).where(Evaluation.split == spec.split, Evaluation.block_size == spec.block_size)
        )
    }
    return [
        _Score(expert_id, domain, tokens, made_by(work.job_id, f"scores {expert_id} {domain.id}"))
        for domain, tokens in texts.items()
        for expert_id in inputs.experts
        if (expert_id, domain.id, len(tokens) - 1) not in done
    ]


def _score_all(work: Work, model: DemixModel, todo: list[_Score], block_size: int) -> Generator[Event, None, None]:
    total, before = sum(len(one.tokens) - 1 for one in todo), 0.0
    for one in todo:
        if not work.storage.path(one.artifact_id).exists():
            with work.storage.new(one.artifact_id) as folder:
                for news in score_tokens(model, one.expert_id, one.tokens, folder, block_size=block_size):
                    yield Progress(before + news.done, total, "tokens", f"scoring {one.domain.name}")
        before += len(one.tokens) - 1


def _register(work: Work, spec: Evaluate, scores: list[_Score]) -> Register:
    totals = [_total(work, one) for one in scores]  # here, since a transaction must be short

    def register(session: Session) -> dict[str, Any]:
        kept = [pair for pair in zip(scores, totals, strict=True) if _is_there(session, pair[0])]
        for one, (num_tokens, log_likelihood) in kept:
            artifact = register_artifact(session, work.storage, one.artifact_id, "scores", job_id=work.job_id)
            register_evaluation(
                session, expert_id=one.expert_id, domain_id=one.domain.id, split=spec.split, block_size=spec.block_size,
                num_tokens=num_tokens, log_likelihood=log_likelihood, artifact=artifact, job_id=work.job_id,
            )  # fmt: skip
        return {"mixture": spec.mixture, "scored": len(kept)}

    return register


def _is_there(session: Session, score: _Score) -> bool:
    """Whether nobody deleted the expert or the domain while it was scored."""
    return session.get(Expert, score.expert_id) is not None and session.get(Domain, score.domain.id) is not None


def _total(work: Work, score: _Score) -> tuple[int, float]:
    """How many tokens were scored, and their log-likelihood together (nats)."""
    path = work.storage.path(score.artifact_id) / "logprobs.npy"
    logprobs = np.load(path, mmap_mode="r", allow_pickle=False)
    return len(logprobs), float(logprobs.sum(dtype=np.float64))
