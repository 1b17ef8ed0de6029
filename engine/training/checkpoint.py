"""Checkpoints that are whole or absent: parameters and Adam's moments as safetensors, hashed, the last two kept."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from engine.config import TrainingConfig
from engine.errors import DamagedFile, TrainingError
from engine.files import new_folder, verify_folder

_KEEP = 2


def save_checkpoint(
    root: Path,
    step: int,
    parameters: Mapping[str, nn.Parameter],
    optimizer: torch.optim.Optimizer,
    config: TrainingConfig,
) -> Path:
    """Writes the state after `step` updates and drops all but the last two checkpoints; gives its folder."""
    folder = root / f"step-{step:08d}"
    with new_folder(folder) as aside:
        save_file(
            {name: p.detach().cpu().contiguous() for name, p in parameters.items()},
            aside / "parameters.safetensors",
        )
        save_file(_moments(parameters, optimizer), aside / "optimizer.safetensors")
        card = {"step": step, "config": asdict(config)}
        (aside / "checkpoint.json").write_text(json.dumps(card, indent=1), encoding="utf-8")
    for old in _folders(root)[:-_KEEP]:
        shutil.rmtree(old)
    return folder


def resume(
    root: Path,
    parameters: Mapping[str, nn.Parameter],
    optimizer: torch.optim.Optimizer,
    config: TrainingConfig,
) -> int:
    """Puts the newest undamaged checkpoint back and gives its step; 0 when there is none.

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
        _restore(folder, parameters, optimizer)
        return int(card["step"])
    return 0


def _folders(root: Path) -> list[Path]:
    return sorted(root.glob("step-*"))


def _moments(parameters: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    return {
        f"{kind}/{name}": torch.as_tensor(value).detach().cpu().contiguous()
        for name, parameter in parameters.items()
        for kind, value in optimizer.state.get(parameter, {}).items()
    }


def _restore(folder: Path, parameters: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer) -> None:
    saved = load_file(folder / "parameters.safetensors")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(saved[name])
    for key, value in load_file(folder / "optimizer.safetensors").items():
        kind, _, name = key.partition("/")
        parameter = parameters[name]
        optimizer.state[parameter][kind] = value if kind == "step" else value.to(parameter.device)
