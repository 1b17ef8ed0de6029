"""The app state that every route and the playground share: settings, weights and places; nothing of a request."""

from __future__ import annotations

from dataclasses import dataclass, field

from ui.generation.followers import Followers
from ui.generation.metrics import Metrics
from ui.generation.model_host import ModelHost
from ui.generation.worker_pool import WorkerPool
from workbench.settings import Settings


@dataclass(frozen=True)
class AppState:
    """Settings and weights of one server, slots of generations and places of followers."""

    settings: Settings
    generations: ModelHost
    slots: WorkerPool
    followers: Followers = field(default_factory=Followers)
    metrics: Metrics = field(default_factory=Metrics)

    def close(self) -> None:
        """Refuses what waits and what is new; generations that run continue, and whoever follows a job is let go."""
        self.slots.close()
        self.followers.close()
