"""MLflow: where MLFLOW_TRACKING_URI says, else an SQLite file in the home folder."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

from jobs.trackers.tracker import Run, TrackerType

EXPERIMENT = "expert-workbench"
JOB_TAG = "workbench.job"
MOST_LETTERS = 500  # of a parameter's value; longer ones are refused by older servers
STATES = {"done": "FINISHED", "failed": "FAILED", "cancelled": "KILLED", "paused": "SCHEDULED", "queued": "SCHEDULED"}


class MLflow:
    """Writes with a client of its own: nothing that another program has set as the active run is touched."""

    def begin(self, run: Run) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient

        run.folder.mkdir(parents=True, exist_ok=True)
        self._client: Any = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{run.folder}/mlflow.db")
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
        known = self._client.get_experiment_by_name(name)
        experiment = str(known.experiment_id if known is not None else self._client.create_experiment(name))
        [*present] = self._client.search_runs([experiment], f"tags.`{JOB_TAG}` = '{run.job_id}'")
        if present:
            self._run: str = present[0].info.run_id
            self._client.update_run(self._run, "RUNNING")
            return
        self._run = self._client.create_run(experiment, tags={JOB_TAG: run.job_id}, run_name=run.name).info.run_id
        for name, value in _flat(run.config):
            self._client.log_param(self._run, name, str(value)[:MOST_LETTERS])

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)  # in milliseconds
        # A store of files cannot hold both `loss` and `loss/law`, so a name has no slash.
        points = [Metric(re.sub(r"[^\w\- :]", ".", name), value, now, step) for name, value in metrics.items()]
        self._client.log_batch(self._run, metrics=points)  # one transaction instead of one for each metric

    def end(self, state: str) -> None:
        self._client.set_terminated(self._run, STATES[state])


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The options of a spec by their path, such as `training.num_steps`."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


TRACKER = TrackerType("mlflow", MLflow)
