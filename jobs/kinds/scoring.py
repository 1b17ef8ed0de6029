"""Scores of a mixture's experts on held-out text: every token's log-likelihood is kept, none is computed twice."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.device import choose_device
from engine.events import Event, Progress
from engine.files import Kept
from engine.models.demix import DemixModel
from engine.models.demix_files import load_demix
from engine.scores import score_tokens
from engine.text.blocks import Tokens
from engine.text.excerpt import Excerpt
from engine.text.tokenizer import load_tokenizer
from engine.training.loop import require_context
from jobs.kinds.ids import made_by
from jobs.kinds.tokens import DomainFiles, domain_files, pack
from jobs.work import Work
from workbench.services.artifacts import register_artifact
from workbench.services.evaluations import register_evaluation
from workbench.services.experts import expert_row
from workbench.services.mixtures import mixture_row
from workbench.tables import Domain, Evaluation, Expert


@dataclass(frozen=True)
class Scored:
    """One expert's scores on one domain, in their folder, and not yet in the registry."""

    expert_id: str
    domain_id: str
    split: str
    block_size: int
    artifact_id: str
    num_tokens: int
    log_likelihood: float  # of all its tokens, nats


def score_missing(
    work: Work,
    mixture: str,
    domains: Sequence[str] | None,
    split: str,
    block_size: int,
    max_tokens: int,
    *,
    also: Sequence[str] = (),
) -> Generator[Event, None, list[Scored]]:
    """The scores that no evaluation holds yet, of every expert on every domain (None: all domains).

    `also` names experts on the same base that are not in the mixture.
    One folder per expert and domain; a resumed job keeps those that are whole. Register them with `register_scores`.
    """
    with work.reading() as session:
        inputs = _read(session, work, mixture, domains, also)
    inputs.base.check()
    tokenizer = load_tokenizer(inputs.base.folder)
    texts = {}
    for domain in inputs.domains:
        folder = yield from pack(work, domain, tokenizer)
        texts[domain] = Excerpt.of(Tokens.open(folder, split), block_size, max_tokens)
    with work.reading() as session:
        todo = _missing(session, work, inputs, texts, split)
    if todo:
        model = load_demix(inputs.base, inputs.experts).to(choose_device(work.settings.device))
        require_context(model, block_size)
        yield from _score_all(work, model, todo)
    return [_scored(work, one, split) for one in todo]


def register_scores(session: Session, work: Work, scores: Sequence[Scored]) -> int:
    """Registers what `score_missing` made; how many, since what was deleted meanwhile is left out."""
    kept = [one for one in scores if _is_there(session, one)]
    for one in kept:
        artifact = register_artifact(session, work.storage, one.artifact_id, "scores", job_id=work.job_id)
        register_evaluation(
            session, expert_id=one.expert_id, domain_id=one.domain_id, split=one.split, block_size=one.block_size,
            num_tokens=one.num_tokens, log_likelihood=one.log_likelihood, artifact=artifact, job_id=work.job_id,
        )  # fmt: skip
    return len(kept)


@dataclass(frozen=True)
class _Inputs:
    base: Kept
    experts: dict[str, Kept]  # by id
    domains: tuple[DomainFiles, ...]


@dataclass(frozen=True)
class _Missing:
    """One expert on one domain: what to score, and where the answer goes."""

    expert_id: str
    domain: DomainFiles
    text: Excerpt
    artifact_id: str


def _read(session: Session, work: Work, mixture: str, domains: Sequence[str] | None, also: Sequence[str]) -> _Inputs:
    experts = [member.expert for member in mixture_row(session, mixture).members]
    experts += [expert_row(session, name) for name in also]
    names = domains or list(session.scalars(select(Domain.name).order_by(Domain.name)))
    return _Inputs(
        base=work.storage.kept(experts[0].base),
        experts={expert.id: work.storage.kept(expert.artifact) for expert in experts},
        domains=tuple(domain_files(session, work.storage, name) for name in names),
    )


def _missing(
    session: Session, work: Work, inputs: _Inputs, texts: dict[DomainFiles, Excerpt], split: str
) -> list[_Missing]:
    def measure(text: Excerpt) -> str:  # one job may score a domain more than once
        return f"{split} {text.block_size} {text.num_tokens}"

    done = {
        (row.expert_id, row.domain_id, row.block_size, row.num_tokens)
        for row in session.scalars(select(Evaluation).where(Evaluation.split == split))
    }
    return [
        _Missing(expert_id, domain, text, made_by(work.job_id, f"scores {expert_id} {domain.id} {measure(text)}"))
        for domain, text in texts.items()
        for expert_id in inputs.experts
        if (expert_id, domain.id, text.block_size, text.num_tokens) not in done
    ]


def _score_all(work: Work, model: DemixModel, todo: list[_Missing]) -> Generator[Event, None, None]:
    total, before = sum(one.text.num_tokens for one in todo), 0.0
    for one in todo:
        if not work.storage.path(one.artifact_id).exists():
            with work.storage.new(one.artifact_id) as folder:
                for news in score_tokens(model, one.expert_id, one.text, folder):
                    yield Progress(before + news.done, total, "tokens", f"scoring {one.domain.name}")
        before += one.text.num_tokens


def _scored(work: Work, one: _Missing, split: str) -> Scored:
    path = work.storage.path(one.artifact_id) / "logprobs.npy"
    logprobs = np.load(path, mmap_mode="r", allow_pickle=False)
    total = float(logprobs.sum(dtype=np.float64))
    size = one.text.block_size
    return Scored(one.expert_id, one.domain.id, split, size, one.artifact_id, len(logprobs), total)


def _is_there(session: Session, one: Scored) -> bool:
    """Whether nobody deleted the expert or the domain while it was scored."""
    return session.get(Expert, one.expert_id) is not None and session.get(Domain, one.domain_id) is not None
