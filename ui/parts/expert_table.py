"""Rows of the registry of experts, and the search through them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ui.parts.words import clock, millions, short, size
from workbench.cards import EvaluationCard, ExpertCard


def expert_row(card: ExpertCard, scores: Sequence[EvaluationCard]) -> dict[str, Any]:
    """One expert as the table shows it."""
    return {
        "expert": card.name,
        "enabled": card.enabled,
        "domains": ", ".join(card.domains),
        "perplexity at home (per token)": home_perplexity(card, scores),
        "method": card.method,
        "parent": card.parent or card.seed,
        "mixtures": ", ".join(card.mixtures),
        "parameters": millions(card.num_parameters),
        "size": size(card.size_bytes),
        "tags": ", ".join(card.tags),
        "base": short(card.base_id),
        "made": clock(card.created_at),
    }


def home_perplexity(card: ExpertCard, scores: Sequence[EvaluationCard]) -> float | None:
    """The newest perplexity on its own domain's held-out text; None while it has not been scored."""
    at_home = [one for one in scores if one.expert == card.name and one.domain == card.domain]
    return max(at_home, key=lambda one: one.created_at).perplexity if at_home else None


def matches(
    card: ExpertCard, search: str, method: Sequence[str], domain: Sequence[str], mixture: Sequence[str]
) -> bool:
    """Whether an expert holds every word of the search, and is one of those wanted (empty wants all)."""
    told = " ".join((card.name, *card.domains, card.notes, card.method, *card.tags)).casefold()
    return (
        all(word in told for word in search.casefold().split())
        and (not method or card.method in method)
        and (not domain or bool(set(domain) & set(card.domains)))
        and (not mixture or bool(set(mixture) & set(card.mixtures)))
    )
