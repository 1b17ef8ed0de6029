"""Rows of the registry of experts, and the search through them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ui.present.text.formatting import clock, millions, pluralize, short, size
from ui.present.text.measures import comparable, in_percent, measure_text
from workbench.registry.cards import EvaluationCard, ExpertCard


def expert_row(card: ExpertCard, scores: Sequence[EvaluationCard], split: str) -> dict[str, Any]:
    """A row for one expert, with the numbers of one split."""
    home = home_score(card, [one for one in scores if one.split == split])
    return {
        "mark": card.mark,
        "expert": card.name,
        "enabled": card.enabled,
        "domains": ", ".join(card.domains),
        "in-domain perplexity (per token)": home.perplexity if home else None,
        "in-domain accuracy (%)": in_percent(home.accuracy) if home else None,
        "measured on": measure_text(home) if home else _elsewhere(card, scores, split),
        "method": card.method,
        "parents": ", ".join(card.parents) or card.seed,
        "mixtures": ", ".join(card.mixtures),
        "parameters": millions(card.total_parameters),
        "own parameters": millions(card.num_parameters),
        "size": size(card.size_bytes),
        "tags": ", ".join(card.tags),
        "base": short(card.base_id),
        "made": clock(card.created_at),
    }


def home_score(card: ExpertCard, scores: Sequence[EvaluationCard]) -> EvaluationCard | None:
    """Its score on its own domain's held-out text that most experts share, or its newest; None where it has none."""
    at_home = [one for one in scores if one.expert == card.name and one.domain == card.domain]
    shared = [one for one in comparable([s for s in scores if s.domain == card.domain]) if one in at_home]
    return max(shared or at_home, key=lambda one: one.created_at, default=None)


def _elsewhere(card: ExpertCard, scores: Sequence[EvaluationCard], split: str) -> str:
    """What an expert without an in-domain score was measured on, such as one trained on several domains."""
    own = [one for one in scores if one.expert == card.name]
    domains = {one.domain for one in own if one.split == split}
    if domains:
        return f"{split}, on {pluralize(len(domains), 'domain')}"
    return f"on {' and '.join(sorted({one.split for one in own}))} only" if own else "not scored"


def matches(
    card: ExpertCard, search: str, method: Sequence[str], domain: Sequence[str], mixture: Sequence[str]
) -> bool:
    """Whether an expert matches every word of the search and every filter (an empty filter matches all)."""
    searched = " ".join((card.name, *card.domains, card.notes, card.method, *card.tags)).casefold()
    return (
        all(word in searched for word in search.casefold().split())
        and (not method or card.method in method)
        and (not domain or bool(set(domain) & set(card.domains)))
        and (not mixture or bool(set(mixture) & set(card.mixtures)))
    )
