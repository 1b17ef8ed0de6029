"""GET /v1/models: every mixture and every enabled expert is a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter

from ui.api.deps import State
from workbench.errors import NotFound

if TYPE_CHECKING:
    from workbench.registry.cards import MixtureCard
    from workbench.settings import Settings

router = APIRouter()


@router.get("/v1/models")
def list_models(house: State) -> dict[str, Any]:
    """Every mixture and expert that can be asked."""
    return {"object": "list", "data": known_models(house.settings)}


@router.get("/v1/models/{name:path}")
def show_model(name: str, house: State) -> dict[str, Any]:
    """One mixture or expert, by its name."""
    models = {model["id"]: model for model in known_models(house.settings)}
    if name not in models:
        raise NotFound("model", name, models)
    return models[name]


def known_models(settings: Settings) -> list[dict[str, Any]]:
    """Mixtures first, then experts that are enabled."""
    from workbench.registry.database import reading
    from workbench.registry.experts import list_experts
    from workbench.registry.mixtures import list_mixtures

    with reading(settings) as session:
        mixtures, experts = list_mixtures(session), list_experts(session)
    return [
        *(_mixture(one) for one in mixtures),
        *(
            _model(one.name, one.created_at, "expert", [one.name], {one.name: one.parts})
            for one in experts
            if one.enabled
        ),
    ]


def _mixture(card: MixtureCard) -> dict[str, Any]:
    enabled = [one for one in card.members if one.enabled]
    taking_part = [one.expert for one in enabled if one.active]
    return _model(card.name, card.created_at, "mixture", taking_part, {one.expert: one.parts for one in enabled})


def _model(
    name: str, created_at: float, kind: str, experts: list[str], members: dict[str, list[str]]
) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": int(created_at),
        "owned_by": "workbench",
        "kind": kind,
        "experts": experts,  # that take part unless a request says otherwise
        "members": list(members),  # that can be asked to
        "parts": {expert: parts for expert, parts in members.items() if parts},  # of experts of MoDE, to be toggled
    }
