"""What a mixture's numbers lack: the experts that are not scored on their text, and the jobs that score them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from engine.text.split_names import HeldOutSplit
from workbench.analysis.perplexity_tables import DomainMeasure
from workbench.answers.cards import ExpertCard
from workbench.kinds.analysis import Evaluate
from workbench.schema.job_tables import Job
from workbench.schema.tables import Evaluation

LEAST_TOKENS = 100  # that an evaluation may be asked for
Cell = tuple[str, str]  # expert, domain


def evaluations_of(
    mixture: str, split: HeldOutSplit, texts: Sequence[DomainMeasure], experts: Sequence[str] = ()
) -> list[Evaluate]:
    """The evaluations after which every expert of a mixture is scored on these texts: one for each block size.

    `experts` are further ones on its base.
    """
    by_size = defaultdict[int, list[DomainMeasure]](list)
    for text in texts:
        by_size[text.block_size].append(text)
    return [
        Evaluate(
            mixture=mixture,
            experts=list(experts),
            split=split,
            domains=[text.domain for text in same],
            block_size=block_size,
            max_tokens=max(LEAST_TOKENS, *(text.num_tokens for text in same)),
        )
        for block_size, same in by_size.items()
    ]


def evaluations_of_cells(
    cells: Sequence[Cell],
    texts: Sequence[DomainMeasure],
    split: HeldOutSplit,
    experts: Mapping[str, ExpertCard],
    mixture: str | None = None,
) -> list[Evaluate]:
    """The evaluations after which these cells have scores on the texts, or on the usual text of a domain without one.

    Without a mixture each expert is scored with one of its own, or with one on its base; without either it is left out.
    `experts` are all of the registry by name.
    """
    by_mixture = defaultdict[str, list[Cell]](list)
    for cell in cells:
        if host := mixture or _host_of(experts[cell[0]], experts):
            by_mixture[host].append(cell)
    specs = list[Evaluate]()
    for host, of_host in by_mixture.items():
        domains = list(dict.fromkeys(domain for _, domain in of_host))
        further = list(dict.fromkeys(name for name, _ in of_host if host not in experts[name].mixtures))
        measured = [text for text in texts if text.domain in domains]
        specs += evaluations_of(host, split, measured, further)
        if new := [name for name in domains if name not in {text.domain for text in measured}]:
            specs.append(Evaluate(mixture=host, experts=further, domains=new, split=split))
    return specs


def _host_of(expert: ExpertCard, experts: Mapping[str, ExpertCard]) -> str:
    """A mixture that can score an expert; empty if there is none."""
    same_base = (name for one in experts.values() if one.base_id == expert.base_id for name in one.mixtures)
    return next(iter([*expert.mixtures, *same_base]), "")


def scoring_seconds(session: Session, num_tokens: int) -> float | None:
    """How long so many tokens take to score by the pace of the last job that scored; None before one has."""
    scored = select(func.sum(Evaluation.num_tokens)).where(Evaluation.job_id == Job.id).scalar_subquery()
    ended = select(Job.started_at, Job.finished_at, scored).where(Job.state == "done", scored > 0)
    for started, finished, tokens in session.execute(ended.order_by(Job.finished_at.desc()).limit(10)).tuples():
        if tokens and started and finished and finished > started:
            return float(num_tokens * (finished - started) / tokens)
    return None
