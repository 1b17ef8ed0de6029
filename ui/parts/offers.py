"""The names that a form can offer, read from the registry."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ui.parts.questions import Offers, Question
from workbench.database import reading
from workbench.services import corpora, experts, mixtures, priors, routing, seeds


def offers_now() -> dict[str, list[str]]:
    """For each field of a spec that takes a name: the names there are."""
    with reading() as session:
        domains = [domain.name for domain in corpora.list_domains(session)]
        trained = [expert.name for expert in experts.list_experts(session)]
        return {
            "domain": domains,
            "domains": domains,
            "watch": domains,
            "retain": domains,
            "seed_model": [seed.name for seed in seeds.list_seeds(session)],
            "mixture": [mixture.name for mixture in mixtures.list_mixtures(session)],
            "parent": trained,
            "experts": trained,
            "prior": [prior.name for prior in priors.list_priors(session)],
        }


def offers_for_expert(mixture: str) -> dict[str, list[str]]:
    """The possible parents in this mixture, and the domains: those first that it has no expert for."""
    with reading() as session:
        members = mixtures.get_mixture(session, mixture).members
        domains = [domain.name for domain in corpora.list_domains(session)]
    taken = {member.domain for member in members}
    return {
        "parent": [member.expert for member in members],
        "domain": sorted(domains, key=lambda domain: domain in taken),
    }


def with_clusterings(questions: Iterable[Question]) -> list[Question]:
    """A gate's questions; its clustering, which it knows by its id, is chosen by its name."""
    with reading() as session:
        names = routing.clustering_names(session)
    about = "Cluster gates: the clustering whose clusters the experts were trained on."
    return [
        replace(one, kind="name", choices=tuple(names), titles=names, help=about)
        if one.path[-1] == "clustering" else one for one in questions
    ]  # fmt: skip


def missing(offers: Offers, *fields: str) -> str:
    """The first of these fields for which the registry holds nothing yet; empty when none is missing."""
    return next((field for field in fields if not offers.get(field)), "")
