"""The models that the server offers: every mixture, every enabled expert, and every seed model as it is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Literal

from workbench.answers.cards import ExpertCard, MemberCard, MixtureCard
from workbench.answers.server import Model
from workbench.registry.aliases import list_aliases
from workbench.registry.database import reading
from workbench.registry.experts import list_with_seeds
from workbench.registry.mixtures import list_mixtures
from workbench.settings import Settings


def known_models(settings: Settings) -> list[Model]:
    """Mixtures first, then experts that are enabled, then seed models."""
    with reading(settings) as session:
        mixtures, experts, aliases = list_mixtures(session), list_with_seeds(session), list_aliases(session)
    named: dict[tuple[str, str], list[str]] = defaultdict(list)
    for alias in aliases:
        named[alias.kind, alias.model].append(alias.name)
    models = [
        *(_mixture(card) for card in mixtures),
        *(_model(card, "expert", [card.name], {card.name: card}) for card in experts if card.enabled),
    ]
    return [model.model_copy(update={"aliases": named[model.kind, model.id]}) for model in models]


def _mixture(card: MixtureCard) -> Model:
    enabled = [member for member in card.members if member.enabled]
    taking_part = [member.expert for member in enabled if member.active]
    members = {member.expert: member for member in enabled}
    return _model(card, "mixture", taking_part, members)


def _model(
    card: MixtureCard | ExpertCard,
    kind: Literal["mixture", "expert"],
    experts: list[str],
    members: Mapping[str, MemberCard | ExpertCard],
) -> Model:
    return Model(
        id=card.name,
        created=int(card.created_at),
        kind=kind,
        experts=experts,
        members=list(members),
        parts={expert: member.parts for expert, member in members.items() if member.parts},
        colour_numbers={expert: member.colour_number for expert, member in members.items()},
        marks={expert: member.mark for expert, member in members.items()},
    )
