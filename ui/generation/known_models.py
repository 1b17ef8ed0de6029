"""The models that the server offers: every mixture and every enabled expert."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from workbench.answers.server import Model

if TYPE_CHECKING:
    from workbench.registry.cards import MixtureCard
    from workbench.settings import Settings


def known_models(settings: Settings) -> list[Model]:
    """Mixtures first, then experts that are enabled."""
    from workbench.registry.database import reading
    from workbench.registry.experts import list_experts
    from workbench.registry.mixtures import list_mixtures

    with reading(settings) as session:
        mixtures, experts = list_mixtures(session), list_experts(session)
    return [
        *(_mixture(card) for card in mixtures),
        *(
            _model(card.name, card.created_at, "expert", [card.name], {card.name: card.parts})
            for card in experts
            if card.enabled
        ),
    ]


def _mixture(card: MixtureCard) -> Model:
    enabled = [member for member in card.members if member.enabled]
    taking_part = [member.expert for member in enabled if member.active]
    parts = {member.expert: member.parts for member in enabled}
    return _model(card.name, card.created_at, "mixture", taking_part, parts)


def _model(
    name: str, created_at: float, kind: Literal["mixture", "expert"], experts: list[str], members: dict[str, list[str]]
) -> Model:
    return Model(
        id=name,
        created=int(created_at),
        kind=kind,
        experts=experts,
        members=list(members),
        parts={expert: parts for expert, parts in members.items() if parts},
    )
