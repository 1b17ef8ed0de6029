"""The trackers of the workbench: MLflow, TensorBoard, Trackio, and Weights & Biases."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from typing import Any

from jobs.trackers.tracker import Run, TrackerType

NAME = "expert-workbench"  # of the experiment, or the project, unless a tracker's own variable says another
JOB_TAG = "workbench.job"
MOST_LETTERS = 500  # of a parameter's value; longer ones are refused by older servers
STATES = {"done": "FINISHED", "failed": "FAILED", "cancelled": "KILLED", "paused": "SCHEDULED", "queued": "SCHEDULED"}


class MLflow:
    """MLflow: where MLFLOW_TRACKING_URI says, else an SQLite file in the home folder.

    It writes with a client of its own: nothing that another program has set as the active run is touched.
    """

    def begin(self, run: Run) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient

        run.folder.mkdir(parents=True, exist_ok=True)
        self._client: Any = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{run.folder}/mlflow.db")
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", NAME)
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


class TensorBoard:
    """TensorBoard: event files in a folder for each job, by PyTorch's own writer.

    Show them with `tensorboard --logdir` and that folder's parent.
    """

    def begin(self, run: Run) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(run.folder / "tensorboard" / run.job_id)
        self._writer.add_text("job", run.name)
        self._writer.add_text("spec", f"```json\n{json.dumps(dict(run.config), indent=2)}\n```")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def end(self, state: str) -> None:
        self._writer.add_text("state", state)
        self._writer.close()


class Trackio:
    """Trackio: a local file that `trackio show` draws, or a Space as its own variables say.

    A run is named by the job's title and id, so that a resumed job continues it.
    """

    def begin(self, run: Run) -> None:
        import trackio

        with redirect_stdout(sys.stderr):  # its greeting; a command's stdout may be JSON
            self._run: Any = trackio.init(
                project=os.environ.get("TRACKIO_PROJECT", NAME),
                name=f"{run.name} {run.job_id[:8]}",
                config=dict(run.config),
                resume="allow",
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def end(self, state: str) -> None:
        with redirect_stdout(sys.stderr):
            self._run.log({"state": state})
            self._run.finish()


class WandB:
    """Weights & Biases: as its own variables say (WANDB_API_KEY, WANDB_MODE=offline, WANDB_PROJECT, WANDB_DIR).

    The id of a run is the job's, so that a resumed job continues it.
    """

    def begin(self, run: Run) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        folder = run.folder / "wandb"
        folder.mkdir(parents=True, exist_ok=True)
        self._run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT", NAME),
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


TRACKER = (
    TrackerType("mlflow", MLflow),
    TrackerType("tensorboard", TensorBoard),
    TrackerType("trackio", Trackio),
    TrackerType("wandb", WandB),
)
