"""Atomic checkpoints: parameters and Adam's moments as safetensors with hashes; the last two are kept.

With early stopping a checkpoint also has the weights of the best evaluation.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from engine.config import TrainingConfig
from engine.errors import DamagedFile, TrainingError
from engine.files import new_folder, verify_folder
from engine.training.early_stopping import EvaluationHistory
from engine.training.local_parts import part_like

KEPT = 2  # checkpoints of one training on disk
_PARAMETERS, _BEST = "parameters", "best"
_PARAMETERS_FILE, _MOMENTS_FILE, _BEST_FILE = "parameters.safetensors", "optimizer.safetensors", "best.safetensors"
_CARD = "checkpoint.json"


def training_state(
    parameters: Mapping[str, nn.Parameter],
    optimizer: torch.optim.Optimizer | None = None,
    best: Mapping[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """Parameters as `parameters/NAME`, Adam's state as `KIND/NAME`, the best weights as `best/NAME`; no copies."""
    state = {f"{_PARAMETERS}/{name}": parameter.detach() for name, parameter in parameters.items()}
    for name, parameter in parameters.items():
        moments = {} if optimizer is None else optimizer.state.get(parameter, {})
        state |= {f"{kind}/{name}": torch.as_tensor(value).detach() for kind, value in moments.items()}
    return state | {f"{_BEST}/{name}": tensor for name, tensor in (best or {}).items()}


def save_checkpoint(
    root: Path, step: int, state: Mapping[str, Tensor], config: TrainingConfig, history: EvaluationHistory | None = None
) -> None:
    """Writes the state after `step` updates and drops all but the last two checkpoints."""
    own = _apart({name: tensor.cpu().contiguous() for name, tensor in state.items()})
    parameters, best = _of_kind(own, _PARAMETERS), _of_kind(own, _BEST)
    moments = {name: tensor for name, tensor in own.items() if name.partition("/")[0] not in (_PARAMETERS, _BEST)}
    with new_folder(checkpoint_folder(root, step)) as aside:
        save_file(parameters, aside / _PARAMETERS_FILE)
        save_file(moments, aside / _MOMENTS_FILE)
        if best:
            save_file(best, aside / _BEST_FILE)
        # “course” is a stored name.
        card = {"step": step, "config": asdict(config), "course": asdict(history or EvaluationHistory())}
        (aside / _CARD).write_text(json.dumps(card, indent=1), encoding="utf-8")
    for old in _folders(root)[:-KEPT]:
        shutil.rmtree(old)


def _apart(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors, none in another's memory, as safetensors requires: 8-bit AdamW's share their maps."""
    seen: set[int] = set()
    own = {}
    for name, tensor in state.items():
        own[name] = tensor.clone() if tensor.data_ptr() in seen else tensor
        seen.add(tensor.data_ptr())
    return own


def drop_after(root: Path, step: int) -> None:
    """Deletes checkpoints after `step`, from which the training continues."""
    for folder in _folders(root):
        if folder.name > checkpoint_folder(root, step).name:
            shutil.rmtree(folder)


def _of_kind(state: Mapping[str, Tensor], kind: str) -> dict[str, Tensor]:
    prefix = f"{kind}/"
    return {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}


def newest_step(root: Path, config: TrainingConfig) -> int:
    """The step of the newest undamaged checkpoint; 0 when there is none.

    Raises TrainingError when it was written with another config.
    """
    for folder in reversed(_folders(root)):
        if _is_intact(folder):
            _require_config(folder, config)
            return int(_card(folder)["step"])
    return 0


def has_checkpoint(root: Path, step: int, config: TrainingConfig, names: Iterable[str]) -> bool:
    """True if an undamaged checkpoint of `step` updates has these parameters. Raises TrainingError as above."""
    folder = checkpoint_folder(root, step)
    if not _is_intact(folder):
        return False
    _require_config(folder, config)
    with safe_open(folder / _PARAMETERS_FILE, "pt") as file:
        return set(names) <= set(file.keys())


def state_at(root: Path, step: int) -> dict[str, Tensor]:
    """A checkpoint's tensors, named as in `training_state`."""
    folder, state = checkpoint_folder(root, step), load_file(checkpoint_folder(root, step) / _MOMENTS_FILE)
    for kind, file in ((_PARAMETERS, _PARAMETERS_FILE), (_BEST, _BEST_FILE)):
        tensors = load_file(folder / file) if (folder / file).exists() else {}
        state |= {f"{kind}/{name}": tensor for name, tensor in tensors.items()}
    return state


def _is_intact(folder: Path) -> bool:
    try:
        verify_folder(folder)
    except DamagedFile:
        return False
    return True


def _require_config(folder: Path, config: TrainingConfig) -> None:
    if TrainingConfig(**_card(folder)["config"]) != config:  # missing settings have their defaults
        raise TrainingError(
            f"The checkpoint {folder} was written with other settings.",
            "Start a new job for new settings.",
        )


def restore(
    root: Path, step: int, parameters: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer | None = None
) -> None:
    """Restores these parameters and their moments after `step` updates; reads no others."""
    folder = checkpoint_folder(root, step)
    with safe_open(folder / _PARAMETERS_FILE, "pt") as file, torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(part_like(file.get_tensor(name), parameter))
    if optimizer is None:
        return
    with safe_open(folder / _MOMENTS_FILE, "pt") as file:
        for key in file.keys():  # noqa: SIM118 (it is no mapping)
            kind, _, name = key.partition("/")
            if name in parameters:
                parameter = parameters[name]
                value = part_like(file.get_tensor(key), parameter)
                # 8-bit AdamW counts its updates in a plain number.
                is_plain = kind == "step" and not isinstance(optimizer, torch.optim.AdamW)
                optimizer.state[parameter][kind] = int(value) if is_plain else value.to(parameter.device)


def evaluation_history_at(root: Path, step: int) -> EvaluationHistory:
    """The history of evaluations in the first `step` updates."""
    return EvaluationHistory(**_card(checkpoint_folder(root, step)).get("course", {}))


def best_weights(root: Path, step: int, parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
    """The best weights of the first `step` updates for these parameters; empty if there are none."""
    file_path = checkpoint_folder(root, step) / _BEST_FILE
    if not file_path.exists():
        return {}
    with safe_open(file_path, "pt") as file:
        return {name: part_like(file.get_tensor(name), parameter) for name, parameter in parameters.items()}


def _card(folder: Path) -> dict[str, Any]:
    card: dict[str, Any] = json.loads((folder / _CARD).read_text(encoding="utf-8"))
    return card


def checkpoint_folder(root: Path, step: int) -> Path:
    """The folder of the checkpoint after `step` updates."""
    return root / f"step-{step:08d}"


def _folders(root: Path) -> list[Path]:
    return sorted(root.glob("step-*"))
