"""Mixtures trained without a domain, as far as the registry knows: what stands for –Domain (DEMix table 7).

A domain is told by its text and not by its name: the same text may have been imported twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.errors import MixtureError
from workbench.services.experts import AVERAGE, ancestors, domains_of, expert_row, origins, put_together_of
from workbench.services.mixtures import mixture_row, taking_part
from workbench.services.seeds import made_of
from workbench.tables import Domain, Expert, Job, Mixture


@dataclass(frozen=True)
class Retrained:
    """A mixture none of whose experts, bases or ancestors was trained on a domain, by its experts that take part."""

    mixture: str
    experts: tuple[Expert, ...]


def retrained_without(session: Session, mixture: str, removed: Expert) -> Retrained:
    """The mixture as one that was trained without an expert's domain; raises MixtureError when it is not."""
    experts = taking_part(mixture_row(session, mixture))
    if objection := _objection(session, experts, removed):
        raise MixtureError(
            f"“{mixture}” must be trained without the domain of “{removed.name}”, from a seed with its tokenizer, "
            f"but {objection}.",
            "Train one on the other domains: workbench train demix.",
        )
    return Retrained(mixture, experts)


def candidates(session: Session, expert: str) -> list[str]:
    """The mixtures that can stand for –Domain when an expert is removed."""
    removed = expert_row(session, expert)
    rows = session.scalars(select(Mixture).order_by(Mixture.name))
    return [row.name for row in rows if not _objection(session, taking_part(row), removed)]


def _objection(session: Session, experts: Iterable[Expert], removed: Expert) -> str:
    """Why experts cannot stand for –Domain; empty when they can."""
    if not experts:
        return "none of its experts is on"
    if removed.domain is None:
        return "that was trained on several"
    for one in experts:
        if one.tokenizer_sha256 != removed.tokenizer_sha256:
            return f"“{one.name}” has another: perplexities per token do not compare"
        if found := seen(session, one, removed.domain):
            return f"“{one.name}” or what it was trained from has seen it{found}"
    return ""


def seen(session: Session, expert: Expert, domain: Domain, *, with_bases: bool = True) -> str:
    """Under which name an expert, its base or an ancestor was trained on a domain's text; empty: on none of it.

    Without bases only what trained the experts themselves counts.
    """
    for one in (expert, *origins(session, expert)):
        if one.data_sha256 == domain.data_sha256:
            return ": the same text"
        of_base = base_domains(session, one) if with_bases else []
        if found := _same_text(session, [*domains_of(one), *of_base], domain):
            return found
    return ""


def seen_by_base(session: Session, expert: Expert, domain: Domain) -> str:
    """The same of the base that an expert stands on alone, with all that it was made of."""
    for one in (expert, *ancestors(expert)):  # a base is that of the parent, or a copy of it that was trained on
        if found := _same_text(session, base_domains(session, one), domain):
            return found
        whole = put_together_of(session, one) if one.method == AVERAGE else []
        copied = made_of(session, one.seed)
        for part in [*whole, *([copied] if copied else [])]:
            if found := seen(session, part, domain):
                return found
    return ""


def base_domains(session: Session, expert: Expert) -> list[str]:
    """The names of the domains that trained an expert's base, those too that are gone."""
    job = session.get(Job, expert.base.job_id) if expert.base.job_id else None
    if job is None or job.kind == "make-seed":  # whose domains trained a tokenizer
        return []
    return [name for name in (*job.spec.get("domains", ()), job.spec.get("domain")) if name]


def _same_text(session: Session, names: Iterable[str], domain: Domain) -> str:
    """Which of these domains has a domain's text; empty: none."""
    for name in names:
        if name == domain.name:
            return f", as “{name}”"
        other = session.scalar(select(Domain).where(Domain.name == name))
        if other is not None and _is_same_text(other, domain):
            return f", as “{name}”: text of the same source"
    return ""


def _is_same_text(one: Domain, other: Domain) -> bool:
    """By its hash, or because two imports took it from one place: either may have taken less of it."""
    is_elsewhere = one.corpus_id != other.corpus_id
    return one.data_sha256 == other.data_sha256 or (is_elsewhere and one.corpus.source == other.corpus.source)
