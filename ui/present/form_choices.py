"""The names that a form can offer, read from the registry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from engine.models.flops import Shape
from ui.present.questions import Offers, Question
from ui.present.text.formatting import pluralize
from workbench.analysis import cluster_routing, mode_parts
from workbench.registry import corpora, experts, mixtures, priors, seeds
from workbench.registry.cards import ExpertCard
from workbench.registry.database import reading


def offers_now() -> dict[str, list[str]]:
    """For each field of a spec that takes a name: the names there are."""
    with reading() as session:
        domains = [domain.name for domain in corpora.list_domains(session)]
        trained = experts.list_experts(session)
        composed = mixtures.most_useful_first(session)
        copied = {expert.name for expert in trained if experts.can_be_parent(expert)}
        return {
            "domain": domains,
            "domains": domains,
            "watch": domains,
            "retain": domains,
            "seed_model": [seed.name for seed in seeds.list_seeds(session)],
            "mixture": [mixture.name for mixture in composed],
            "mixture_to_extend": [one.name for one in composed if copied & {member.expert for member in one.members}],
            "parent": [expert.name for expert in trained if expert.name in copied],
            "experts": [expert.name for expert in trained],
            "mode_expert": [expert.name for expert in trained if experts.has_parts(expert)],
            "prior": [prior.name for prior in priors.list_priors(session)],
        }


def offers_for_expert(mixture: str) -> dict[str, list[str]]:
    """The possible parents in this mixture, and the domains: those first that it has no expert for."""
    with reading() as session:
        members = [experts.get_expert(session, one.expert) for one in mixtures.get_mixture(session, mixture).members]
        domains = [domain.name for domain in corpora.list_domains(session)]
    taken = {name for member in members for name in member.domains}
    return {
        "parent": [member.name for member in members if experts.can_be_parent(member)],
        "domain": sorted(domains, key=lambda domain: domain in taken),
    }


def with_clusterings(questions: Iterable[Question]) -> list[Question]:
    """A gate's questions; its clustering, which it knows by its id, is chosen by its name."""
    with reading() as session:
        names = cluster_routing.clustering_names(session)
    about = "Cluster gates: the clustering whose clusters the experts were trained on."
    return [
        replace(one, kind="name", choices=tuple(names), titles=names, help=about)
        if one.path[-1] == "clustering"
        else one
        for one in questions
    ]


def offers_for_composition(backbone: str, chosen: Sequence[str]) -> dict[str, list[str]]:
    """The experts of MoDE that can stand side by side on a backbone, and the parts of those that are chosen."""
    together = backbones()[backbone]
    with reading() as session:
        parts = mode_parts.part_names(session, [name for name in chosen if name in together])
    return {"experts": together, "without": parts}


def backbones() -> dict[str, list[str]]:
    """The experts of MoDE by what they stand on, a seed model in so many blocks; that with the most comes first."""
    found: dict[str, list[str]] = {}
    with reading() as session:
        for card in experts.list_experts(session):
            if experts.has_parts(card):
                found.setdefault(backbone_of(card), []).append(card.name)
    return dict(sorted(found.items(), key=lambda pair: -len(pair[1])))


def backbone_of(card: ExpertCard) -> str:
    """What an expert of MoDE stands on, as a person tells it from others."""
    return f"{card.seed} in {pluralize(card.config['shape']['num_blocks'], 'block')}"


def num_layers(seed_model: str) -> int:
    """Of a seed model: in as many blocks it can be cut."""
    with reading() as session:
        return Shape.of(seeds.get_seed(session, seed_model).config).num_layers


def missing(offers: Offers, *fields: str) -> str:
    """The first of these fields for which the registry holds nothing yet; empty when none is missing."""
    return next((field for field in fields if not offers.get(field)), "")
