"""Checkpoints that are whole or absent: parameters and Adam's moments as safetensors, hashed, the last two kept."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from engine.config import TrainingConfig
from engine.errors import DamagedFile, TrainingError
from engine.files import new_folder, verify_folder

_KEEP = 2
_PARAMETERS = "parameters"
_PARAMETERS_FILE, _MOMENTS_FILE = "parameters.safetensors", "optimizer.safetensors"


def training_state(
    parameters: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer | None = None
) -> dict[str, Tensor]:
    """Parameters as `parameters/NAME` and Adam's state as `KIND/NAME`; views, not copies."""
    state = {f"{_PARAMETERS}/{name}": parameter.detach() for name, parameter in parameters.items()}
    for name, parameter in parameters.items():
        moments = {} if optimizer is None else optimizer.state.get(parameter, {})
        state |= {f"{kind}/{name}": torch.as_tensor(value).detach() for kind, value in moments.items()}
    return state


def save_checkpoint(root: Path, step: int, state: Mapping[str, Tensor], config: TrainingConfig) -> None:
    """Writes the state after `step` updates and drops all but the last two checkpoints."""
    own = {name: tensor.cpu().contiguous() for name, tensor in state.items()}
    prefix = f"{_PARAMETERS}/"
    with new_folder(checkpoint_folder(root, step)) as aside:
        parameters = {name.removeprefix(prefix): tensor for name, tensor in own.items() if name.startswith(prefix)}
        save_file(parameters, aside / _PARAMETERS_FILE)
        save_file({name: tensor for name, tensor in own.items() if not name.startswith(prefix)}, aside / _MOMENTS_FILE)
        card = {"step": step, "config": asdict(config)}
        (aside / "checkpoint.json").write_text(json.dumps(card, indent=1), encoding="utf-8")
    for old in _folders(root)[:-_KEEP]:
        shutil.rmtree(old)


def newest_step(root: Path, config: TrainingConfig) -> int:
    """The step of the newest undamaged checkpoint; 0 when there is none.

    Raises TrainingError when it was written by another config, since going on would be another training.
    """
    for folder in reversed(_folders(root)):
        try:
            verify_folder(folder)
        except DamagedFile:
            continue
        card = json.loads((folder / "checkpoint.json").read_text(encoding="utf-8"))
        if card["config"] != asdict(config):
            raise TrainingError(
                f"The checkpoint {folder} must be of the same settings, but they differ.",
                "Start a new job for new settings.",
            )
        return int(card["step"])
    return 0


def restore(
    root: Path, step: int, parameters: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer | None = None
) -> None:
    """Puts these parameters, and their moments, back to what they were after `step` updates; reads no others."""
    folder = checkpoint_folder(root, step)
    with safe_open(folder / _PARAMETERS_FILE, "pt") as file, torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(file.get_tensor(name))
    if optimizer is None:
        return
    with safe_open(folder / _MOMENTS_FILE, "pt") as file:
        for key in file.keys():  # noqa: SIM118 (it is no mapping)
            kind, _, name = key.partition("/")
            if name in parameters:
                parameter = parameters[name]
                optimizer.state[parameter][kind] = file.get_tensor(key).to(parameter.device)


def checkpoint_folder(root: Path, step: int) -> Path:
    """Where the checkpoint after `step` updates lies."""
    return root / f"step-{step:08d}"


def _folders(root: Path) -> list[Path]:
    return sorted(root.glob("step-*"))
