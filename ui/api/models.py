"""GET /v1/models: every mixture and every enabled expert is a model."""

from __future__ import annotations

from fastapi import APIRouter

from ui.api.deps import State
from ui.generation.known_models import known_models
from workbench.answers.server import Model, ModelList
from workbench.errors import NotFoundError

router = APIRouter()


@router.get("/v1/models")
def list_models(state: State) -> ModelList:
    """Every mixture and every enabled expert."""
    return ModelList(data=known_models(state.settings))


@router.get("/v1/models/{name:path}")
def show_model(name: str, state: State) -> Model:
    """One mixture or expert, by its name or an alias."""
    models = {model.id: model for model in known_models(state.settings)}
    models = {alias: model for model in models.values() for alias in model.aliases} | models
    if name not in models:
        raise NotFoundError("model", name, models)
    return models[name]
