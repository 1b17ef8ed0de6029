"""Priors: named expert weights before any text, set by hand or estimated on held-out text (DEMix §5.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.config import absurdity
from engine.errors import MixtureError
from workbench.answers.cards import GivenByHand, PriorCard
from workbench.answers.posteriors import EstimatedPrior, PriorSource
from workbench.errors import BadSpecError, NotFoundError
from workbench.registry.experts import expert_row
from workbench.schema.names import by_name, clean_name, ensure_free
from workbench.schema.tables import Expert, Prior


def list_priors(session: Session) -> list[PriorCard]:
    """All priors by name."""
    return [_card(session, row) for row in session.scalars(select(Prior).order_by(Prior.name))]


def get_prior(session: Session, name: str) -> PriorCard:
    """One prior."""
    return _card(session, by_name(session, Prior, name))


def give_prior(session: Session, name: str, weights: Mapping[str, float]) -> PriorCard:
    """Stores a prior set by hand: weights of experts by name, on any scale."""
    total = sum(weights.values())
    if not weights or min(weights.values()) < 0 or not total > 0 or absurdity(list(weights.values())):
        raise BadSpecError(["The weights of a prior must be at least 0 with a positive sum."])
    ids = {expert_row(session, expert).id: weight / total for expert, weight in weights.items()}
    return _store(session, name, ids, None)


def keep_estimate(session: Session, name: str, estimate: EstimatedPrior) -> PriorCard:
    """Stores the shares that `workbench.questions.posteriors.PriorRequest` estimated, under a name.

    Estimating reads scores, so it must happen before the write transaction. Raises NotFoundError when an expert was
    deleted since.
    """
    existing = set(session.scalars(select(Expert.id).where(Expert.id.in_(list(estimate.shares)))))
    if deleted := next((id for id in estimate.shares if id not in existing), None):
        raise NotFoundError("expert", deleted, session.scalars(select(Expert.name)))
    return _store(session, name, estimate.shares, estimate.source)


def weights_under(session: Session, prior: str, experts: Iterable[str]) -> dict[str, float]:
    """The shares of these experts by name; raises MixtureError when the prior has none for one of them."""
    shares, wanted = get_prior(session, prior).shares, list(experts)
    missing = [expert for expert in wanted if expert not in shares]
    if missing:
        raise MixtureError(
            f"The prior “{prior}” has no share for the expert “{missing[0]}”.",
            "Estimate a prior for this mixture, or switch that expert off.",
        )
    return {expert: shares[expert] for expert in wanted}


def delete_prior(session: Session, name: str) -> None:
    """Deletes a prior; mixtures keep their weights."""
    session.delete(by_name(session, Prior, name))


def _store(session: Session, name: str, shares: Mapping[str, float], source: PriorSource | None) -> PriorCard:
    name = clean_name("prior", name)
    ensure_free(session, Prior, name)
    row = Prior(name=name, shares=dict(shares), source=source.model_dump() if source else {})
    session.add(row)
    session.flush()
    return _card(session, row)


def _card(session: Session, row: Prior) -> PriorCard:
    names = dict(session.execute(select(Expert.id, Expert.name).where(Expert.id.in_(list(row.shares)))).tuples().all())
    shares = {names[id]: share for id, share in row.shares.items() if id in names}
    source = PriorSource.model_validate(row.source) if row.source else GivenByHand()
    return PriorCard.from_fields(row, shares=shares, source=source)
