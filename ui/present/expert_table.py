"""The registry of experts as rows, with the states and the filters that experts are looked for by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.text.split_names import HeldOutSplit
from ui.present.text.formatting import clock, millions, pluralize, short, size
from ui.present.text.measures import in_percent, measure_text
from workbench.answers.cards import DomainCard, EvaluationCard, ExpertCard

CERTIFIED, NOT_SCORED, WITH_ALIAS = "certified", "not scored", "with an alias"


@dataclass(frozen=True)
class Registry:
    """All experts, and what their rows and cards say beside them."""

    cards: Sequence[ExpertCard]
    home: Mapping[str, EvaluationCard] = field(default_factory=dict)  # in-domain scores on `split` by expert
    scored: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # domains by expert and split
    split: HeldOutSplit = "test"
    certified: frozenset[str] = frozenset()  # ids
    aliases: Mapping[str, Sequence[str]] = field(default_factory=dict)  # by expert
    domains: Mapping[str, DomainCard] = field(default_factory=dict)

    def states(self, card: ExpertCard) -> list[str]:
        """What can be said of an expert beside its names."""
        states = {
            "enabled": card.enabled,
            "disabled": not card.enabled,
            CERTIFIED: card.id in self.certified,
            "in a mixture": bool(card.mixtures),
            NOT_SCORED: card.name not in self.scored,
            WITH_ALIAS: card.name in self.aliases,
            "documents changed": card.stale,
        }
        return [state for state, is_so in states.items() if is_so]


def expert_row(card: ExpertCard, registry: Registry) -> dict[str, Any]:
    """A row for one expert, with the numbers of one split."""
    home = registry.home.get(card.name)
    return {
        "mark": card.mark,
        "expert": card.name,
        "enabled": card.enabled,
        "domains": ", ".join(card.domains),
        "in-domain perplexity (per token)": home.perplexity if home else None,
        "in-domain accuracy (%)": in_percent(home.accuracy) if home else None,
        "measured on": measure_text(home) if home else _elsewhere(registry.scored.get(card.name, {}), registry.split),
        "tokenizer": short(card.tokenizer_sha256),
        "method": card.method,
        "parents": ", ".join(card.parents) or card.seed,
        "mixtures": ", ".join(card.mixtures),
        "aliases": ", ".join(registry.aliases.get(card.name, ())),
        "parameters": millions(card.total_parameters),
        "own parameters": millions(card.num_parameters),
        "size": size(card.size_bytes),
        "tags": ", ".join(card.tags),
        "base": short(card.base_id),
        "made": clock(card.created_at),
    }


def _elsewhere(scored: Mapping[str, int], split: HeldOutSplit) -> str:
    """What an expert without an in-domain score was measured on, such as one trained on several domains."""
    if split in scored:
        return f"{split}, on {pluralize(scored[split], 'domain')}"
    return f"on {' and '.join(sorted(scored))} only" if scored else "not scored"


# filters ---------------------------------------------------------------------------------------------

METHOD, STATE, DOMAIN, MIXTURE, TAG = "method", "state", "domain", "mixture", "tag"


def facets(registry: Registry) -> dict[str, Callable[[ExpertCard], Sequence[str]]]:
    """By name of a filter, the values that an expert has for it."""
    return {
        METHOD: lambda card: [card.method],
        STATE: registry.states,
        DOMAIN: lambda card: card.domains,
        MIXTURE: lambda card: card.mixtures,
        TAG: lambda card: card.tags,
    }


def counts(registry: Registry) -> dict[str, dict[str, int]]:
    """By filter the values that experts have, with the number of these experts, in alphabetical order."""
    return {
        name: dict(sorted(Counter(value for card in registry.cards for value in values(card)).items()))
        for name, values in facets(registry).items()
    }


def filtered(registry: Registry, search: str, wanted: Mapping[str, Sequence[str]]) -> list[ExpertCard]:
    """The experts that match every word of the search, all states and one value of each other filter."""
    words, values_of = search.casefold().split(), facets(registry)

    def matches(card: ExpertCard) -> bool:
        aliases = registry.aliases.get(card.name, ())
        text = " ".join((card.name, *card.domains, card.notes, card.method, *card.tags, *aliases)).casefold()
        return all(word in text for word in words) and all(
            _has(set(values_of[name](card)), chosen, every=name == STATE) for name, chosen in wanted.items() if chosen
        )

    return [card for card in registry.cards if matches(card)]


def _has(values: set[str], chosen: Iterable[str], *, every: bool) -> bool:
    return values.issuperset(chosen) if every else not values.isdisjoint(chosen)


def _perplexity(registry: Registry, card: ExpertCard) -> float:
    home = registry.home.get(card.name)
    return home.perplexity if home else float("inf")


ORDERS: dict[str, Callable[[Registry, ExpertCard], Any]] = {
    "name": lambda _, card: card.name,
    "newest first": lambda _, card: -card.created_at,
    "in-domain perplexity": _perplexity,
    "own parameters": lambda _, card: card.num_parameters,
}


def ordered(registry: Registry, cards: Iterable[ExpertCard], order: str) -> list[ExpertCard]:
    """Experts in one of the `ORDERS`."""
    return sorted(cards, key=lambda card: ORDERS[order](registry, card))
