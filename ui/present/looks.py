"""One colour and one mark for one expert; a domain has those of its own expert."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from workbench.registry.cards import ExpertCard

_COLOURS = ("#3c90fc", "#cc0084", "#9c9000", "#308454", "#6054e4", "#d86c78", "#906018", "#b478b4")
_LETTERS = ("#000000", "#ffffff", "#000000", "#ffffff", "#ffffff", "#000000", "#ffffff", "#000000")  # on each of them


@dataclass(frozen=True)
class Look:
    """How an expert or a domain is drawn; grey and without a mark where it has no colour of its own."""

    colour: str = "#8a867f"
    letters: str = "#000000"
    mark: str = ""


@dataclass(frozen=True)
class Looks:
    """The looks of experts and domains by name."""

    experts: Mapping[str, Look] = field(default_factory=dict)
    domains: Mapping[str, Look] = field(default_factory=dict)

    def expert(self, name: str) -> Look:
        return self.experts.get(name, Look())

    def domain(self, name: str) -> Look:
        return self.domains.get(name, Look())


def looks_of(cards: Iterable[ExpertCard]) -> Looks:
    """The looks of all experts, by the time they were made."""
    experts, domains = dict[str, Look](), dict[str, Look]()
    for number, card in enumerate(sorted(cards, key=lambda card: (card.created_at, card.id))):
        place = number % len(_COLOURS)
        experts[card.name] = Look(_COLOURS[place], _LETTERS[place], card.name.rpartition("/")[2][:2].capitalize())
        if card.domain:
            domains.setdefault(card.domain, experts[card.name])
    return Looks(experts, domains)
