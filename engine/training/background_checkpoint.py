"""A checkpoint that a thread writes from a copy in main memory while the training goes on.

The thread writes, syncs and hashes this process's files, and nothing else. What all processes must agree upon is done
by the thread that trains, after the same update in each: that all have written, the manifest, and the folder's name.
So no collective runs beside those of an update, and a process that was suspended past its lease renames nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from pathlib import Path

from torch import Tensor

from engine.config import TrainingConfig
from engine.free_memory import free_main_memory
from engine.training.checkpoint import EvaluationHistory, new_checkpoint, write_own
from engine.training.checkpoint_parts import own_state
from engine.training.distributed import ProcessGroup
from engine.training.local_parts import local_part

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
