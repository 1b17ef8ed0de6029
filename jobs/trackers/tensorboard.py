"""TensorBoard: event files in a folder for each job. Show them with `tensorboard --logdir` and that folder's parent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from jobs.trackers.tracker import Run, TrackerType


class TensorBoard:
    """Writes with PyTorch's own writer."""

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


TRACKER = TrackerType("tensorboard", TensorBoard)
