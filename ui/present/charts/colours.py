"""One colour and one mark for one expert on every page, as the registry holds them; its domain has them, too."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from workbench.formatting.palette import Look, free_number, look_of
from workbench.registry.cards import ClusterCard, ExpertCard, ExpertLook

if TYPE_CHECKING:
    from workbench.settings import Settings

NO_LOOK = Look()


@dataclass(frozen=True)
class Looks:
    """The looks of all experts and domains by name. A name without one is grey and has no mark."""

    experts: dict[str, Look] = field(default_factory=dict)
    domains: dict[str, Look] = field(default_factory=dict)

    def expert(self, name: str) -> Look:
        """The look of an expert."""
        return self.experts.get(name, NO_LOOK)

    def domain(self, name: str) -> Look:
        """The look of a domain: that of the oldest expert of it alone."""
        return self.domains.get(name, NO_LOOK)

    def named(self, name: str) -> Look:
        """The look of what is an expert or a domain, such as the metric of a training."""
        return self.experts.get(name) or self.domain(name)

    def with_new(self, names: Sequence[str]) -> Looks:
        """Also the looks that names without one would get if they were registered now, in this order."""
        known = {look.number for look in self.experts.values() if look.number is not None}
        looks = dict[str, Look]()
        for name in dict.fromkeys(names):
            if self.named(name) is NO_LOOK:
                number = free_number(known, known)
                known.add(number)
                looks[name] = look_of(number)
        return Looks(self.experts, {**self.domains, **looks})


def looks_of(cards: Iterable[ExpertCard | ExpertLook]) -> Looks:
    """The looks of these experts, the oldest first, and of their domains."""
    experts, domains = dict[str, Look](), dict[str, Look]()
    for card in cards:
        experts[card.name] = look_of(card.colour_number, card.mark)
        if card.domain:
            domains.setdefault(card.domain, experts[card.name])
    return Looks(experts, domains)


def read_looks(settings: Settings | None = None) -> Looks:
    """The looks of all experts and domains of the registry."""
    from workbench.registry.database import reading
    from workbench.registry.experts import list_looks

    with reading(settings) as session:
        return looks_of(list_looks(session))


def in_order(names: Sequence[str]) -> Looks:
    """Looks by place, for what the registry does not know: the parts of one expert, whose backbone stays grey."""
    looks = Looks().with_new(names).domains
    return Looks(looks, looks)


def of_clusters(clusters: Sequence[ClusterCard], looks: Looks) -> dict[str, Look]:
    """The looks of clusters by name: those of their experts, else the next free ones in their order."""
    trained = {one.name: looks.domain(one.domain) for one in clusters if one.domain}
    known = Looks({name: look for name, look in trained.items() if look is not NO_LOOK})
    every = known.with_new([one.name for one in clusters])
    return {one.name: every.named(one.name) for one in clusters}


def chip(look: Look) -> str:
    """HTML of a mark on its colour, to stand before a name; a dot in the colour where there is no mark."""
    if not look.mark:
        return f'<span aria-hidden="true" style="color:{look.colour}">●</span>'
    return (
        f'<span style="background:{look.colour};color:{look.letters};border-radius:4px;padding:1px 4px;'
        f'font-size:.8em;font-weight:600">{html.escape(look.mark)}</span>'
    )


def marked(name: str, look: Look) -> str:
    """The name after its mark, for a place without colours: `Py demo/python`."""
    return f"{look.mark} {name}" if look.mark else name
