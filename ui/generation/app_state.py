"""The app state that every route and the playground share: settings, weights and slots; nothing of a request."""

from __future__ import annotations

from dataclasses import dataclass

from ui.generation.model_host import ModelHost
from ui.generation.worker_pool import WorkerPool
from workbench.settings import Settings


@dataclass(frozen=True)
class AppState:
    """Settings, weights and slots of one server."""

    settings: Settings
    generations: ModelHost
    slots: WorkerPool
