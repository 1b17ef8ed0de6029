"""One colour and one mark for one expert on every page, as the registry holds them; its domain has them as well."""

from __future__ import annotations

import html
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from workbench.answers.cards import ClusterCard, ExpertCard, ExpertLook
from workbench.formatting.palette import Look, free_number, look_of

if TYPE_CHECKING:
    from workbench.settings import Settings

NO_LOOK = Look()


@dataclass(frozen=True)
class Looks:
    """The looks of all experts and domains by name. A name without one is grey and has no mark."""

    experts: dict[str, Look] = field(default_factory=dict)
    domains: dict[str, Look] = field(default_factory=dict)
    domain_of: dict[str, str] = field(default_factory=dict)  # of experts of one domain only, the oldest first

    def expert(self, name: str) -> Look:
        """The look of an expert."""
        return self.experts.get(name, NO_LOOK)

    def domain(self, name: str) -> Look:
        """The look of a domain: that of the oldest expert of it only, unless `among` names the experts that count."""
        return self.domains.get(name, NO_LOOK)

    def expert_or_domain(self, name: str) -> Look:
        """The look of what is an expert or a domain, such as the metric of a training."""
        return self.experts.get(name) or self.domain(name)

    def among(self, experts: Collection[str]) -> Looks:
        """The same looks, but a domain has that of its oldest expert among these, where it has one."""
        own = dict[str, Look]()
        for expert, domain in self.domain_of.items():
            if expert in experts:
                own.setdefault(domain, self.expert(expert))
        return replace(self, domains={**self.domains, **own})

    def with_new(self, names: Sequence[str]) -> Looks:
        """Also the looks that names without one would get if they were registered now, in this order."""
        known = {look.number for look in self.experts.values() if look.number is not None}
        looks = dict[str, Look]()
        for name in dict.fromkeys(names):
            if self.expert_or_domain(name) is NO_LOOK:
                number = free_number(known, known)
                known.add(number)
                looks[name] = look_of(number)
        return replace(self, domains={**self.domains, **looks})


def looks_of(cards: Iterable[ExpertCard | ExpertLook]) -> Looks:
    """The looks of these experts, the oldest first, and of their domains."""
    experts, domain_of = dict[str, Look](), dict[str, str]()
    for card in cards:
        experts[card.name] = look_of(card.colour_number, card.mark)
        if card.domain:
            domain_of[card.name] = card.domain
    return Looks(experts, domain_of=domain_of).among(experts)


def read_looks(settings: Settings | None = None, job_id: str | None = None) -> Looks:
    """The looks of all experts and domains of the registry. With a job, its domains have those of its experts."""
    from workbench.registry.database import reading
    from workbench.registry.experts import list_looks

    with reading(settings) as session:
        cards = list_looks(session)
    return looks_of(cards).among([card.name for card in cards if job_id and card.job_id == job_id])


def in_order(names: Sequence[str]) -> Looks:
    """Looks by place, for what the registry does not know: the parts of one expert, whose backbone stays grey."""
    looks = Looks().with_new(names).domains
    return Looks(looks, looks)


def of_clusters(clusters: Sequence[ClusterCard], looks: Looks) -> dict[str, Look]:
    """The looks of clusters by name: those of their experts, else the next free ones in their order."""
    trained = {cluster.name: looks.domain(cluster.domain) for cluster in clusters if cluster.domain}
    known = Looks({name: look for name, look in trained.items() if look is not NO_LOOK})
    every = known.with_new([cluster.name for cluster in clusters])
    return {cluster.name: every.expert_or_domain(cluster.name) for cluster in clusters}


def chip(look: Look) -> str:
    """HTML of a mark on its colour, to stand before a name; a dot in the colour without a mark."""
    if not look.mark:
        return f'<span aria-hidden="true" style="color:{look.colour}">●</span>'
    return (
        f'<span style="background:{look.colour};color:{look.letters};border-radius:4px;padding:1px 4px;'
        f'font-size:.8em;font-weight:600">{html.escape(look.mark)}</span>'
    )


def with_mark(name: str, look: Look) -> str:
    """The name after its mark, for a place without colours: `Py demo/python`."""
    return f"{look.mark} {name}" if look.mark else name
