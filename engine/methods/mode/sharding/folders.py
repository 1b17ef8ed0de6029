"""Files of processes with experts: checkpoints of each expert, and finally the expert.

They are stored by expert, so that a training can resume with another number of processes.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from engine.config import TrainingConfig
from engine.files import new_folder, verify_folder
from engine.methods.mode.model import ModeModel
from engine.models.stored_tensors import save_tensors
from engine.training.checkpoint import evaluation_history_at, has_checkpoint, newest_step, save_checkpoint, state_at

_EXPERTS, _MADE, _PART = "experts", "made", "part.safetensors"


def expert_folder(folder: Path, key: str) -> Path:
    """The folder of an expert's checkpoints within a training's folder."""
    return folder / _EXPERTS / key


def save_trained(model: ModeModel, key: str, folder: Path) -> None:
    """Writes a trained expert into the folder of its training."""
    with new_folder(expert_folder(folder, key) / _MADE) as aside:
        save_tensors(model.expert_state(key), aside / _PART)


def part_path(folder: Path, key: str) -> Path:
    """The verified file that `save_trained` wrote; raises DamagedFileError."""
    made = expert_folder(folder, key) / _MADE
    verify_folder(made)
    return made / _PART


def gather_checkpoints(folder: Path, names: Iterable[str], config: TrainingConfig) -> None:
    """Merges the newest checkpoints of several processes, so that a single process can resume from them.

    `names` are those of all trained parameters. Does nothing if there is no such checkpoint.
    """
    step = newest_step(folder, config)
    own = {key: list(some) for key, some in groupby(names, key=lambda name: name.partition(":")[0])}
    if step and all(has_checkpoint(expert_folder(folder, key), step, config, some) for key, some in own.items()):
        state = {name: one for key in own for name, one in state_at(expert_folder(folder, key), step).items()}
        save_checkpoint(folder, step, state, config, evaluation_history_at(folder, step))
        shutil.rmtree(folder / _EXPERTS)
