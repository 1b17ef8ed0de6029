"""Weights & Biases: as its own variables say (WANDB_API_KEY, WANDB_MODE=offline, WANDB_PROJECT, WANDB_DIR)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from jobs.trackers.tracker import Run, TrackerType

PROJECT = "expert-workbench"


class WandB:
    """A run whose id is the job's, so that a resumed job continues it."""

    def begin(self, run: Run) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        folder = run.folder / "wandb"
        folder.mkdir(parents=True, exist_ok=True)
        self._run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            id=run.job_id,
            name=run.name,
            config=dict(run.config),
            resume="allow",
            dir=os.environ.get("WANDB_DIR", str(folder)),
            settings=wandb.Settings(silent=True, console="off", disable_git=True, x_disable_stats=True),
        )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def end(self, state: str) -> None:
        self._run.summary["state"] = state
        self._run.finish(exit_code=0 if state == "done" else 1)


TRACKER = TrackerType("wandb", WandB)
