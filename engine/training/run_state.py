"""The state of a training that outlives its process: weights, moments, evaluations, and their checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from engine.config import TrainingConfig
from engine.device import free_main_memory
from engine.events import Saved
from engine.training.checkpoint import (
    EvaluationHistory,
    best_weights,
    checkpoint_folder,
    drop_cut_off,
    evaluation_history_at,
    new_checkpoint,
    newest_step,
    own_state,
    restore,
    save_checkpoint,
    training_state,
    write_own,
)
from engine.training.distributed import ProcessGroup, copy_aside, local_part

LEAST_BYTES = 64 << 20  # a smaller state is written about as fast as it is copied
_FREE_COPIES = 2  # one for the copy, and as much again for what is written and for the next updates


def pays_off(state: Mapping[str, Tensor], team: ProcessGroup) -> bool:
    """Whether what all write is large, with main memory for copies of it and cores for the threads. All must ask."""
    size = team.sum_over_loops(sum(local_part(tensor).nbytes for tensor in state.values()))
    if size < LEAST_BYTES:
        return False
    free, is_on_gpu = free_main_memory(), any(tensor.device.type != "cpu" for tensor in state.values())
    is_refused = free is None or free < _FREE_COPIES * size or not has_idle_cores(team.num_processes == 1, is_on_gpu)
    return team.sum_over_loops(is_refused) == 0


def has_idle_cores(is_single: bool, is_on_gpu: bool) -> bool:
    """Whether updates leave cores to a thread: several processes on CPUs occupy all, and no gain was measured there."""
    return is_single or is_on_gpu


class BackgroundCheckpoint:
    """A checkpoint in flight. All processes make it, and call its methods, after the same updates."""

    def __init__(
        self,
        root: Path,
        step: int,
        state: Mapping[str, Tensor],
        config: TrainingConfig,
        history: EvaluationHistory,
        team: ProcessGroup,
    ) -> None:
        """Copies what this process is to write; the copy lives until it is written."""
        self.step, self._team = step, team
        with ExitStack() as opened:
            folder, self._hashes = opened.enter_context(new_checkpoint(root, step, config, history, team))
            own = own_state(state, copied=True)
            self._until_named = opened.pop_all()
        writer = ThreadPoolExecutor(1, "checkpoint")
        self._written = writer.submit(write_own, folder, own, team)
        writer.shutdown(wait=False)

    def is_written(self) -> bool:
        """Whether each process has written its files, or has failed to."""
        return self._team.sum_over_loops(not self._written.done()) == 0

    def finish(self) -> None:
        """Waits until all have written and gives the checkpoint its name; raises what went wrong in the thread."""
        with self._until_named:
            self._hashes |= self._written.result()

    def end_with(self, error: BaseException) -> bool:
        """Called when an error ends the training; returns whether the checkpoint is there.

        Several processes may not agree any more, so they lose it.
        """
        if self._team.num_processes == 1:
            with suppress(Exception):  # what is raised is the error that ends the training
                self.finish()
                return True
            return False
        wait([self._written])
        self._until_named.__exit__(type(error), error, None)
        return False


@dataclass
class RunState:
    """What a training stores in `folder` and starts again from."""

    _folder: Path
    _parameters: Mapping[str, nn.Parameter]
    _optimizer: torch.optim.Optimizer
    _config: TrainingConfig
    _team: ProcessGroup
    history: EvaluationHistory = field(default_factory=EvaluationHistory)
    in_flight: BackgroundCheckpoint | None = None
    _best: dict[str, Tensor] = field(default_factory=dict)  # weights of the best evaluation so far, with patience

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
