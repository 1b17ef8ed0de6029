"""What processes with experts leave on disk: checkpoints of each expert, and at the end the expert.

They lie by expert, so that a training may go on in another number of processes.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from engine.config import TrainingConfig
from engine.files import new_folder, verify_folder
from engine.methods.mode.files import save_part
from engine.methods.mode.model import ModeModel
from engine.training.checkpoint import evaluation_history_at, has_checkpoint, newest_step, save_checkpoint, state_at

_EXPERTS, _MADE, _PART = "experts", "made", "part.safetensors"


def expert_folder(folder: Path, key: str) -> Path:
    """Where an expert's checkpoints lie, in the folder of a training."""
    return folder / _EXPERTS / key


def save_trained(model: ModeModel, key: str, folder: Path) -> None:
    """Writes what an expert has learnt into the folder of its training."""
    with new_folder(expert_folder(folder, key) / _MADE) as aside:
        save_part(model, key, aside / _PART)


def made_file(folder: Path, key: str) -> Path:
    """The file that `keep_made` wrote, once it proved to be whole; raises DamagedFile."""
    made = expert_folder(folder, key) / _MADE
    verify_folder(made)
    return made / _PART


def gather_checkpoints(folder: Path, names: Iterable[str], config: TrainingConfig) -> None:
    """Makes the newest checkpoint of experts in several processes one that a single process goes on from.

    `names` are those of all parameters that learn. Does nothing where there is no such checkpoint.
    """
    step = newest_step(folder, config)
    own = {key: list(some) for key, some in groupby(names, key=lambda name: name.partition(":")[0])}
    if step and all(has_checkpoint(expert_folder(folder, key), step, config, some) for key, some in own.items()):
        state = {name: one for key in own for name, one in state_at(expert_folder(folder, key), step).items()}
        save_checkpoint(folder, step, state, config, evaluation_history_at(folder, step))
        shutil.rmtree(folder / _EXPERTS)
