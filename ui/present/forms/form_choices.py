"""What forms offer and propose: names of the registry, and the answers with which a training's form opens."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from engine.methods.parts import method
from engine.methods.registry import method_of
from engine.models.flops import Shape
from ui.present.forms.questions import Answers, Offers, QuestionForm, assemble
from workbench.answers.cards import ExpertCard
from workbench.kinds.kind import parse_spec
from workbench.registry import corpora, expert_parts, experts, mixtures, priors, seeds
from workbench.registry.clusters import cluster_routing
from workbench.registry.database import reading
from workbench.specs.base import Spec


def offers_now() -> dict[str, list[str]]:
    """For each field of a spec that takes a name: the names there are."""
    with reading() as session:
        domains = [domain.name for domain in corpora.list_domains(session)]
        trained = experts.list_experts(session)
        composed = mixtures.most_useful_first(session)
        parents = {expert.name for expert in trained if method_of(expert.method).can_be_copied}
        return {
            "domain": domains,
            "domains": domains,
            "watch": domains,
            "retain": domains,
            "seed_model": [seed.name for seed in seeds.list_seeds(session)],
            "mixture": [mixture.name for mixture in composed],
            "mixture_to_extend": [
                mixture.name for mixture in composed if parents & {member.expert for member in mixture.members}
            ],
            "parent": [expert.name for expert in trained if expert.name in parents],
            "experts": [expert.name for expert in experts.list_with_seeds(session)],
            "mode_expert": [expert.name for expert in trained if experts.has_parts(expert)],
            "prior": [prior.name for prior in priors.list_priors(session)],
        }


def offers_for_expert(mixture: str) -> dict[str, list[str]]:
    """The possible parents in this mixture, and the domains: those first that it has no expert for."""
    with reading() as session:
        members = [
            experts.get_expert(session, member.expert) for member in mixtures.get_mixture(session, mixture).members
        ]
        domains = [domain.name for domain in corpora.list_domains(session)]
    taken = {name for member in members for name in member.domains}
    return {
        "parent": [member.name for member in members if method_of(member.method).can_be_copied],
        "domain": sorted(domains, key=lambda domain: domain in taken),
    }


def seed_of_mixture(mixture: str) -> str:
    """The seed model that all experts of a mixture descend from; empty where there are several or none is known."""
    with reading() as session:
        by_name = {card.name: card for card in experts.list_experts(session)}
        members = [by_name[member.expert] for member in mixtures.get_mixture(session, mixture).members]
    names = {_first_of_line(card, by_name).seed for card in members}
    return (names.pop() or "") if len(names) == 1 else ""


def _first_of_line(card: ExpertCard, by_name: Mapping[str, ExpertCard]) -> ExpertCard:
    parent = by_name.get(card.parent or "")
    return card if card.seed is not None or parent is None else _first_of_line(parent, by_name)


def clustering_names() -> dict[str, str]:
    """The names of all clusterings by their ids."""
    with reading() as session:
        return cluster_routing.clustering_names(session)


def with_clusterings(questions: Iterable[QuestionForm]) -> list[QuestionForm]:
    """The questions of a gate, where its clustering is chosen by name instead of id."""
    names = clustering_names()
    return [
        replace(question, answer_type="name", choices=tuple(names), choice_labels=names)
        if question.path[-1] == "clustering"
        else question
        for question in questions
    ]


def offers_for_composition(backbone: str, chosen: Sequence[str]) -> dict[str, list[str]]:
    """The experts with parts on a backbone, and the parts of those that are chosen."""
    available = backbones()[backbone]
    with reading() as session:
        parts = expert_parts.part_names(session, [name for name in chosen if name in available])
    return {"experts": available, "without": parts}


def backbones() -> dict[str, list[str]]:
    """The experts with parts by their backbone, such as a seed model in 3 blocks; the largest group first."""
    groups: dict[str, list[str]] = {}
    with reading() as session:
        for card in experts.list_experts(session):
            if experts.has_parts(card):
                groups.setdefault(backbone_of(card), []).append(card.name)
    return dict(sorted(groups.items(), key=lambda pair: -len(pair[1])))


def backbone_of(card: ExpertCard) -> str:
    """The backbone of an expert with parts, as a label."""
    seed, described = card.seed or "a seed model", method.backbone_of(card.method, card.config)
    return f"{seed} in {described}" if described else seed


def num_layers(seed_model: str) -> int:
    """The layers of a seed model: the most blocks it can be divided into."""
    with reading() as session:
        return Shape.of(seeds.get_seed(session, seed_model).config).num_layers


def is_untrained(seed_model: str) -> bool:
    """Whether a seed model has random weights: a fresh one, as training makes experts and leaves it as it is."""
    with reading() as session:
        return seeds.get_seed(session, seed_model).source == "fresh"


def missing(offers: Offers, *fields: str) -> str:
    """The first of these fields for which the registry holds nothing yet; empty when none is missing."""
    return next((field for field in fields if not offers.get(field)), "")


def takes_text(spec: type[Spec]) -> bool:
    """Whether jobs of this spec train on domains."""
    return "training" in spec.model_fields and bool({"domain", "domains"} & set(spec.model_fields))


def proposed_answers(
    spec: type[Spec], domains: Sequence[str], offers: Offers, taken: Collection[str], extra: Answers
) -> dict[tuple[str, ...], Any]:
    """The answers of a form: the text, a free name, the first of what else is required, and its `extra`."""
    answers: dict[tuple[str, ...], Any] = {}
    for name, field in spec.model_fields.items():
        if name == "domains":
            answers[name,] = list(domains)
        elif name == "domain":
            answers[name,] = domains[0]
        elif name == "name":
            answers[name,] = free_name(domains[0], taken)
        elif field.is_required() and offers.get(name):
            answers[name,] = offers[name][0]
    return {**answers, **extra}


def proposed_spec(spec: type[Spec], answers: Answers) -> Any:
    """The spec of these answers. Raises BadSpecError where they are not enough."""
    return parse_spec({"kind": spec.model_fields["kind"].default, **assemble(answers)})


def free_name(domain: str, taken: Collection[str]) -> str:
    """The domain's name, with a number where it is taken."""
    name = re.sub(r"[,/]+", " ", domain).strip()[:60] or "new"
    return next(one for one in (name, *(f"{name}-{number}" for number in range(2, 10_000))) if one not in taken)
