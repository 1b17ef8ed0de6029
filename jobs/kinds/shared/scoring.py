"""Scores of a mixture's experts on held-out text, stored per token. Existing scores are not computed again."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.errors import MixtureError
from engine.events import Event, Note, Progress
from engine.files import ArtifactRef
from engine.inference.scores import counted_tokens, score_card, score_tokens, token_hits
from engine.models.expert_model import ExpertModel
from engine.text.blocks import EvalSample, Tokens
from engine.text.chat.own_template import template_folder
from engine.text.chat.template import load_chat_template
from engine.text.split_names import HeldOutSplit
from engine.text.tokenizer import load_tokenizer
from jobs.attempt.work import Work, stable_id
from jobs.kinds.shared.model_loading import Experts, load_experts
from jobs.kinds.shared.tokens import DomainFiles, can_show, domain_files, pack
from workbench.analysis.perplexity_tables import register_evaluation
from workbench.errors import StorageError
from workbench.registry.experts import expert_row
from workbench.registry.mixtures import mixture_row
from workbench.schema.tables import Domain, Evaluation, Expert
from workbench.store import artifact_kinds
from workbench.store.artifacts import register_artifact

_Measure = tuple[str, str, int, int]  # expert, domain, block size, tokens


@dataclass(frozen=True)
class Scored:
    """One expert's scores on one domain: written to a folder, not yet registered."""

    expert_id: str
    domain_id: str
    split: HeldOutSplit
    block_size: int
    artifact_id: str
    num_tokens: int
    log_likelihood: float  # of all its tokens that count, nats
    num_correct: int | None  # of these the most probable ones
    num_counted: int | None  # None: all count


def score_missing(
    work: Work,
    mixture: str,
    domains: Sequence[str] | None,
    split: HeldOutSplit,
    block_size: int,
    max_tokens: int,
    *,
    more_experts: Sequence[str] = (),
    again: bool = False,
) -> Generator[Event, None, list[Scored]]:
    """Computes the missing scores of every expert on every domain (None: all domains).

    `more_experts` names further ones with the same tokenizer; `again` computes existing scores again. One base is in
    memory at a time. Writes one folder per expert and domain; a resumed job keeps the complete ones. Register them with
    `register_scores`.
    """
    with work.reading() as session:
        inputs = _read(session, work, mixture, domains, more_experts)
    first = next(iter(inputs.experts))
    first.check()
    tokenizer = load_tokenizer(first.folder)  # that of all
    texts = {}
    template = next(iter(_template_folders(inputs.experts)))  # that of all, where conversations are read
    shown = [domain for domain in inputs.domains if domains or can_show(template, domain)]
    if left := sorted({domain.name for domain in inputs.domains} - {domain.name for domain in shown}):
        yield Note(f"Without scores, since the base has no chat template: {', '.join(left)}.")
    if any(domain.is_chat for domain in shown):
        _require_one_template(inputs.experts)
    for domain in shown:
        folder = yield from pack(work, domain, tokenizer, template, block_size)
        texts[domain] = EvalSample.of(Tokens.open(folder, split), block_size, max_tokens)
    with work.reading() as session:
        done: Collection[_Measure] = () if again else _done(session, work, split, texts)
    todo = _missing(work, inputs, texts, split, done)
    yield from _score_all(work, inputs.experts, todo, block_size)
    return [_scored(work, one, split) for one in todo]


def _template_folders(experts: Experts) -> Iterator[Path]:
    """The folder of each expert's chat template."""
    for base, kept in experts.items():
        yield from (template_folder(base.folder, one.folder) for one in kept.values())


def _require_one_template(experts: Experts) -> None:
    """Raises MixtureError if the experts show conversations in different ways: their tokens would differ."""
    templates = (load_chat_template(folder) for folder in dict.fromkeys(_template_folders(experts)))
    if len({None if template is None else template.sha256 for template in templates}) > 1:
        raise MixtureError(
            "The experts of this mixture have different chat templates, so they do not read the same tokens of a "
            "conversation.",
            "Evaluate experts of one chat template, or on domains of texts.",
        )


def register_scores(session: Session, work: Work, scores: Sequence[Scored]) -> int:
    """Registers the results of `score_missing`. Returns their number without those deleted meanwhile."""
    kept = [one for one in scores if _is_there(session, one)]
    for one in kept:
        artifact = register_artifact(session, work.storage, one.artifact_id, artifact_kinds.SCORES, job_id=work.job_id)
        register_evaluation(
            session,
            expert_id=one.expert_id,
            domain_id=one.domain_id,
            split=one.split,
            block_size=one.block_size,
            num_tokens=one.num_tokens,
            log_likelihood=one.log_likelihood,
            num_correct=one.num_correct,
            num_counted=one.num_counted,
            artifact=artifact,
            job_id=work.job_id,
        )
    return len(kept)


@dataclass(frozen=True)
class _Inputs:
    experts: Experts
    domains: tuple[DomainFiles, ...]


@dataclass(frozen=True)
class _Missing:
    """One expert on one domain: the text to score and the artifact to write."""

    expert_id: str
    domain: DomainFiles
    text: EvalSample
    artifact_id: str


def _read(
    session: Session, work: Work, mixture: str, domains: Sequence[str] | None, more_experts: Sequence[str]
) -> _Inputs:
    experts = [member.expert for member in mixture_row(session, mixture).members]
    experts += [expert_row(session, name) for name in more_experts]
    by_base: dict[ArtifactRef, dict[str, ArtifactRef]] = {}
    for expert in experts:
        by_base.setdefault(work.storage.kept(expert.base), {})[expert.id] = work.storage.kept(expert.artifact)
    names = domains or list(session.scalars(select(Domain.name).order_by(Domain.name)))
    return _Inputs(
        experts=by_base,
        domains=tuple(domain_files(session, work.storage, name) for name in names),
    )


def _done(
    session: Session, work: Work, split: HeldOutSplit, texts: Mapping[DomainFiles, EvalSample]
) -> Collection[_Measure]:
    """What is scored already. Conversations that were masked by an earlier rule are scored again."""
    rows = session.scalars(select(Evaluation).where(Evaluation.split == split))
    hashes = {domain.id: text.sha256 for domain, text in texts.items() if domain.is_chat}
    return {
        (row.expert_id, row.domain_id, row.block_size, row.num_tokens)
        for row in rows
        if row.domain_id not in hashes or _scored_text(work, row) == hashes[row.domain_id]
    }


def _scored_text(work: Work, row: Evaluation) -> str:
    """The hash of the text of a score; empty where its files are gone."""
    try:
        return str(score_card(work.storage.kept(row.artifact).folder)["text_sha256"])
    except (OSError, ValueError, StorageError):
        return ""


def _missing(
    work: Work, inputs: _Inputs, texts: dict[DomainFiles, EvalSample], split: HeldOutSplit, done: Collection[_Measure]
) -> list[_Missing]:
    def measure(text: EvalSample) -> str:  # one job may score a domain more than once
        return f"{split} {text.block_size} {text.num_tokens}"

    return [
        _Missing(expert_id, domain, text, stable_id(work.job_id, f"scores {expert_id} {domain.id} {measure(text)}"))
        for experts in inputs.experts.values()
        for domain, text in texts.items()
        for expert_id in experts
        if (expert_id, domain.id, text.block_size, text.num_tokens) not in done
    ]


def _score_all(work: Work, experts: Experts, todo: Sequence[_Missing], block_size: int) -> Generator[Event, None, None]:
    total, before = sum(one.text.num_tokens for one in todo), 0
    for base, kept in experts.items():
        of_base = [one for one in todo if one.expert_id in kept]
        if of_base:
            yield from _score_base(load_experts(work, base, kept, block_size), work, of_base, before, total)
        before += sum(one.text.num_tokens for one in of_base)


def _score_base(
    model: ExpertModel, work: Work, todo: Sequence[_Missing], before: int, total: int
) -> Generator[Event, None, None]:
    for one in todo:
        if not work.storage.path(one.artifact_id).exists():
            with work.storage.new(one.artifact_id) as folder:
                for progress in score_tokens(model, one.expert_id, one.text, folder):
                    yield Progress(before + progress.done, total, "tokens", f"scoring {one.domain.name}")
        before += one.text.num_tokens


def _scored(work: Work, one: _Missing, split: HeldOutSplit) -> Scored:
    folder = work.storage.path(one.artifact_id)
    logprobs = np.load(folder / "logprobs.npy", mmap_mode="r", allow_pickle=False)
    hits = token_hits(folder)  # None in the folder of a job that began before hits were kept
    counted = counted_tokens(folder)
    is_counted = slice(None) if counted is None else counted.numpy()
    return Scored(
        one.expert_id,
        one.domain.id,
        split,
        one.text.block_size,
        one.artifact_id,
        len(logprobs),
        log_likelihood=float(logprobs[is_counted].sum(dtype=np.float64)),
        num_correct=None if hits is None else int(np.count_nonzero(hits[is_counted])),
        num_counted=None if counted is None else int(counted.sum()),
    )


def _is_there(session: Session, one: Scored) -> bool:
    """Whether the expert and the domain still exist."""
    return session.get(Expert, one.expert_id) is not None and session.get(Domain, one.domain_id) is not None
