"""The state of a training that outlives its process: weights, moments, evaluations, and their checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from engine.config import TrainingConfig
from engine.events import Saved
from engine.training.background_checkpoint import BackgroundCheckpoint, pays_off
from engine.training.checkpoint import (
    EvaluationHistory,
    best_weights,
    checkpoint_folder,
    drop_cut_off,
    evaluation_history_at,
    newest_step,
    restore,
    save_checkpoint,
    training_state,
)
from engine.training.distributed import ProcessGroup
from engine.training.local_parts import copy_aside


class RunState:
    """What a training stores in `folder` and starts again from."""

    def __init__(
        self,
        folder: Path,
        parameters: Mapping[str, nn.Parameter],
        optimizer: torch.optim.Optimizer,
        config: TrainingConfig,
        team: ProcessGroup,
    ) -> None:
        self.history = EvaluationHistory()
        self.in_flight: BackgroundCheckpoint | None = None
        self._best: dict[str, Tensor] = {}  # weights of the best evaluation so far, with patience
        self._folder, self._parameters, self._optimizer = folder, parameters, optimizer
        self._config, self._team = config, team

    def resume(self) -> int:
        """Loads the newest checkpoint that all processes can use; returns its step, 0 without one."""
        if self._team.rank == 0:
            drop_cut_off(self._folder)
        step = self._team.broadcast(newest_step(self._folder, self._config) if self._team.rank == 0 else 0)
        self._team.on_resume(step)
        if step:
            restore(self._folder, step, self._parameters, self._optimizer)
            self.history = evaluation_history_at(self._folder, step)
            self._best = best_weights(self._folder, step, self._parameters)
        return step

    def add_evaluation(self, step: int, losses: dict[str, float]) -> None:
        """Records held-out losses; with patience the weights are kept where they are the best so far."""
        self.history.evaluated_step, self.history.last_losses = step, losses
        if not step:
            self.history.first_losses = losses
        if self._config.patience and self.history.add(step, losses, self._team):
            self._best = {name: copy_aside(parameter) for name, parameter in self._parameters.items()}
            self._team.on_best()

    @torch.no_grad()
    def restore_best(self) -> bool:
        """Loads the best weights into the model; False if that is done already or there are none."""
        if not self._best:
            return False
        for name, tensor in self._best.items():
            self._parameters[name].copy_(tensor)
        self._best = {}
        return True

    def save(self, step: int) -> Saved:
        """Writes a checkpoint."""
        self._team.save_others()
        save_checkpoint(self._folder, step, self._own_state(), self._config, self.history, self._team)
        return self._saved(step)

    def save_in_background(self, step: int) -> bool:
        """Starts to write a checkpoint while the training goes on; False where that does not pay off."""
        state = self._own_state()
        if not pays_off(state, self._team):
            return False
        self._team.save_others()
        self.in_flight = BackgroundCheckpoint(self._folder, step, state, self._config, self.history, self._team)
        return True

    def finish_in_flight(self, checkpoint: BackgroundCheckpoint) -> Saved:
        """Waits until a checkpoint is written, and gives it its name."""
        self.in_flight = None
        checkpoint.finish()
        return self._saved(checkpoint.step)

    def end_with(self, error: BaseException) -> Saved | None:
        """Ends a checkpoint in flight because of an error; its event where it was complete.

        A shared store gets it: a retry may run on another machine.
        """
        ending = self.in_flight
        return self._saved(ending.step) if ending and ending.end_with(error) else None

    def _own_state(self) -> Mapping[str, Tensor]:
        return self._team.own_state(training_state(self._parameters, self._optimizer, self._best))

    def _saved(self, step: int) -> Saved:
        return Saved(step, str(checkpoint_folder(self._folder, step)))
