"""The domain of a prompt by the posterior after it: the weights before the first token of each answer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.mixing.gate_type import gate_type
from workbench.answers.history import NewAnswer
from workbench.schema.tables import Domain, Expert
from workbench.specs.gates import load_gate

LEAST_SHARE = 0.5  # of the weight, which the leading domain must exceed
_SHOWN = 8  # domains whose weights are stored


def domain_weights(session: Session, answers: Sequence[NewAnswer]) -> dict[str, float]:
    """The weight of each domain after the prompt, the largest first; empty where no answer says anything of it.

    The mean over those answers whose models cover the most domains. A gate with the same weights for every text, and a
    model of one domain, say nothing of the prompt.
    """
    names = {name for answer in answers for name in _first_weights(answer)}
    rows = session.execute(select(Expert.name, Domain.name).join(Expert.domain).where(Expert.name.in_(names)))
    domains: dict[str, str] = dict(rows.tuples().all())
    by_answer = [_by_domain(_first_weights(answer), domains) for answer in answers]
    most = max((len(one) for one in by_answer), default=0)
    if most < 2:
        return {}
    chosen = [one for one in by_answer if len(one) == most]
    totals: dict[str, float] = defaultdict(float)
    for one in chosen:
        for domain, weight in one.items():
            totals[domain] += weight / len(chosen)
    ordered = sorted(totals.items(), key=lambda item: (-item[1], item[0]))[:_SHOWN]
    return {domain: round(weight, 4) for domain, weight in ordered}


def leading_domain(weights: Mapping[str, float]) -> str:
    """The domain with more than half of the weight; empty if none has."""
    return next((domain for domain, weight in weights.items() if weight > LEAST_SHARE), "")


def _first_weights(answer: NewAnswer) -> Mapping[str, float]:
    """The weights of experts before the first token of an answer; empty if they are those of every text."""
    if not answer.expert_weights or gate_type(load_gate(answer.manifest.gate).kind).is_constant:
        return {}
    return answer.expert_weights[0]


def _by_domain(weights: Mapping[str, float], domains: Mapping[str, str]) -> dict[str, float]:
    totals: dict[str, float] = defaultdict(float)
    for expert, weight in weights.items():
        if expert in domains:
            totals[domains[expert]] += weight
    return totals
