"""Atomic checkpoints: parameters and Adam's moments as safetensors with hashes; the last two are kept.

With early stopping a checkpoint also has the weights of the best evaluation. Processes that train together write their
parts of one checkpoint.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from engine.config import TrainingConfig
from engine.errors import TrainingError
from engine.files import aside_of, aside_pattern, faults_in, new_folder, sha256_of, sync
from engine.training.distributed import SINGLE_PROCESS, ProcessGroup, first_row, local_part, part_like

PARAMETERS, BEST = "parameters", "best"
_PARAMETERS_FILE, _MOMENTS_FILE, _BEST_FILE = "parameters.safetensors", "optimizer.safetensors", "best.safetensors"
_PREFIXES = {_PARAMETERS_FILE: f"{PARAMETERS}/", _MOMENTS_FILE: "", _BEST_FILE: f"{BEST}/"}


@dataclass(frozen=True)
class OwnState:
    """What a process writes: its parts of tensors, named as in `training_state`, in main memory; where they begin."""

    tensors: Mapping[str, Tensor]
    first_rows: Mapping[str, int]


def own_state(state: Mapping[str, Tensor], *, copied: bool = False) -> OwnState:
    """The parts that this process holds: where they are, but for those on a GPU; or all of them as copies.

    None lies in another's memory, as safetensors requires: 8-bit AdamW's share their maps.
    """
    seen: set[int] = set()
    own = {}
    for name, given in state.items():
        held = local_part(given)
        tensor = held.cpu().contiguous()
        is_shared = tensor.data_ptr() in seen or (copied and tensor.data_ptr() == held.data_ptr())
        own[name] = tensor.clone() if is_shared else tensor
        seen.add(tensor.data_ptr())
    return OwnState(own, {name: first_row(tensor) for name, tensor in state.items()})


def write_full(folder: Path, state: OwnState) -> dict[str, str]:
    """Writes and syncs the state of a training in one process; returns the SHA-256 of each file."""
    own = state.tensors
    moments = {name: tensor for name, tensor in own.items() if name.partition("/")[0] not in (PARAMETERS, BEST)}
    files = {_PARAMETERS_FILE: _of_kind(own, PARAMETERS), _MOMENTS_FILE: moments}
    if best := _of_kind(own, BEST):
        files[_BEST_FILE] = best
    return {file: _write(tensors, folder / file) for file, tensors in files.items()}


def write_part(folder: Path, rank: int, state: OwnState) -> None:
    """Writes and syncs what one of several processes holds."""
    file, about = _part_names(rank)
    content = {"sha256": _write(state.tensors, folder / file), "first_rows": state.first_rows}
    (folder / about).write_text(json.dumps(content, indent=1), encoding="utf-8")
    sync(folder / about)


class StoredState(Mapping[str, Tensor]):
    """A checkpoint's tensors, named as in `training_state`; each is read when it is asked for, and is whole."""

    def __init__(self, folder: Path, opened: ExitStack) -> None:
        self._pieces: dict[str, list[tuple[int, Any, str]]] = {}  # first row, file, and name in it
        for file, prefix in _PREFIXES.items():
            if (folder / file).exists():
                stored = opened.enter_context(safe_open(folder / file, "pt"))
                self._pieces |= {f"{prefix}{name}": [(0, stored, name)] for name in stored.keys()}  # noqa: SIM118
        for about in sorted(folder.glob("part-*.json")):
            stored = opened.enter_context(safe_open(about.with_suffix(".safetensors"), "pt"))
            for name, row in _read(about)["first_rows"].items():
                self._pieces.setdefault(name, []).append((row, stored, name))

    def __getitem__(self, name: str) -> Tensor:
        pieces = sorted(self._pieces[name], key=lambda piece: piece[0])
        tensors = [file.get_tensor(own_name) for _, file, own_name in pieces]
        return tensors[0] if len(tensors) == 1 else torch.cat(tensors)

    def __iter__(self) -> Iterator[str]:
        return iter(self._pieces)

    def __len__(self) -> int:
        return len(self._pieces)


@contextmanager
def stored_state(folder: Path) -> Iterator[StoredState]:
    """Opens the files of a checkpoint."""
    with ExitStack() as opened:
        yield StoredState(folder, opened)


def _write(tensors: Mapping[str, Tensor], file: Path) -> str:
    save_file(dict(tensors), file)
    sync(file)
    return sha256_of(file)


def _of_kind(state: Mapping[str, Tensor], kind: str) -> dict[str, Tensor]:
    prefix = f"{kind}/"
    return {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}


def _part_names(rank: int) -> tuple[str, str]:
    """The file of a process, and its list."""
    return f"part-{rank:05d}.safetensors", f"part-{rank:05d}.json"


def _read(about: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(about.read_text(encoding="utf-8"))
    return content


@dataclass
class EvaluationHistory:
    """The evaluations so far, in steps and nats per token."""

    evaluated_step: int = -1  # of the last one; -1 before the first
    last_losses: dict[str, float] = field(default_factory=dict)  # of each domain trained on; empty before the first
    first_losses: dict[str, float] = field(default_factory=dict)  # the same before the first update
    best_step: int = 0
    best_losses: dict[str, float] = field(default_factory=dict)  # the same, with patience only
    num_worse: int = 0  # evaluations in a row since the best one

    def add(self, step: int, losses: Mapping[str, float], team: ProcessGroup) -> bool:
        """Adds an evaluation; True if it is the best so far, as decided by the first process."""
        best = fmean(self.best_losses.values()) if self.best_losses else math.inf
        is_better = bool(team.broadcast(int(fmean(losses.values()) < best)))
        if is_better:
            self.best_step, self.best_losses, self.num_worse = step, dict(losses), 0
        else:
            self.num_worse += 1
        return is_better


KEPT = 2  # checkpoints of one training on disk
_CARD = "checkpoint.json"
_NAMES = "step-*"


def training_state(
    parameters: Mapping[str, nn.Parameter],
    optimizer: torch.optim.Optimizer | None = None,
    best: Mapping[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """Parameters as `parameters/NAME`, Adam's state as `KIND/NAME`, the best weights as `best/NAME`; no copies."""
    state = {f"{PARAMETERS}/{name}": parameter.detach() for name, parameter in parameters.items()}
    for name, parameter in parameters.items():
        moments = {} if optimizer is None else optimizer.state.get(parameter, {})
        state |= {f"{kind}/{name}": torch.as_tensor(value).detach() for kind, value in moments.items()}
    return state | {f"{BEST}/{name}": tensor for name, tensor in (best or {}).items()}


def save_checkpoint(
    root: Path,
    step: int,
    state: Mapping[str, Tensor],
    config: TrainingConfig,
    history: EvaluationHistory | None = None,
    team: ProcessGroup = SINGLE_PROCESS,
) -> None:
    """Writes the state after `step` updates and drops all but the last two checkpoints.

    In a process group each process passes what it is to write.
    """
    with new_checkpoint(root, step, config, history, team) as (folder, hashes):
        hashes |= write_own(folder, own_state(state), team)


@contextmanager
def new_checkpoint(
    root: Path,
    step: int,
    config: TrainingConfig,
    history: EvaluationHistory | None = None,
    team: ProcessGroup = SINGLE_PROCESS,
) -> Iterator[tuple[Path, dict[str, str]]]:
    """Yields a folder for what each process writes, and where to put the hashes that `write_own` returns.

    Afterwards the first process gives the folder its name, once all have written, and drops older checkpoints.
    """
    folder, mark = checkpoint_folder(root, step), str(team.broadcast(os.getpid()))
    if team.rank:
        team.wait()  # until the folder is there
        yield aside_of(folder, mark), {}
        team.wait()
        return
    # “course” is a stored name.
    card = {"step": step, "config": asdict(config), "course": asdict(history or EvaluationHistory())}
    hashes: dict[str, str] = {}
    with new_folder(folder, mark=mark, hashes=hashes) as aside:
        team.wait()
        yield aside, hashes
        team.wait()
        if team.num_processes > 1:
            for file, about in map(_part_names, range(team.num_processes)):
                hashes |= {file: _read(aside / about)["sha256"], about: sha256_of(aside / about)}
        (aside / _CARD).write_text(json.dumps(card, indent=1), encoding="utf-8")
    for old in _folders(root)[:-KEPT]:
        shutil.rmtree(old)


def write_own(folder: Path, state: OwnState, team: ProcessGroup) -> dict[str, str]:
    """Writes and syncs what this process writes; returns the hashes of files that no other list has."""
    if team.num_processes == 1:
        return write_full(folder, state)
    write_part(folder, team.rank, state)
    return {}


def drop_after(root: Path, step: int) -> None:
    """Deletes checkpoints after `step`, from which the training continues."""
    for folder in _folders(root):
        if folder.name > checkpoint_folder(root, step).name:
            shutil.rmtree(folder)


def drop_cut_off(root: Path) -> None:
    """Deletes what killed processes had not finished writing; to be called before a training writes there."""
    for folder in root.glob(aside_pattern(_NAMES)):
        shutil.rmtree(folder, ignore_errors=True)


def newest_step(root: Path, config: TrainingConfig) -> int:
    """The step of the newest undamaged checkpoint; 0 when there is none.

    Raises TrainingError when it was written with another config.
    """
    for folder in reversed(_folders(root)):
        if _is_intact(folder):
            _require_config(folder, config)
            return int(_read(folder / _CARD)["step"])
    return 0


def has_checkpoint(root: Path, step: int, config: TrainingConfig, names: Iterable[str]) -> bool:
    """True if an undamaged checkpoint of `step` updates has these parameters. Raises TrainingError as above."""
    folder = checkpoint_folder(root, step)
    if not _is_intact(folder):
        return False
    _require_config(folder, config)
    with stored_state(folder) as stored:
        return {f"{PARAMETERS}/{name}" for name in names} <= stored.keys()


def state_at(root: Path, step: int) -> dict[str, Tensor]:
    """A checkpoint's tensors, named as in `training_state`."""
    with stored_state(checkpoint_folder(root, step)) as stored:
        return dict(stored)


def _is_intact(folder: Path) -> bool:
    return not any(faults_in(folder))


def _require_config(folder: Path, config: TrainingConfig) -> None:
    if TrainingConfig(**_read(folder / _CARD)["config"]) != config:  # missing settings have their defaults
        raise TrainingError(
            f"The checkpoint {folder} was written with other settings.",
            "Start a new job for new settings.",
        )


def restore(
    root: Path, step: int, parameters: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer | None = None
) -> None:
    """Restores these parameters and their moments after `step` updates; reads no others."""
    with stored_state(checkpoint_folder(root, step)) as stored, torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(part_like(stored[f"{PARAMETERS}/{name}"], parameter))
        if optimizer is None:
            return
        for key in stored:
            kind, _, name = key.partition("/")
            if name in parameters and kind not in (PARAMETERS, BEST):
                value = part_like(stored[key], parameters[name])
                # 8-bit AdamW counts its updates in a plain number.
                is_plain = kind == "step" and not isinstance(optimizer, torch.optim.AdamW)
                moment = int(value) if is_plain else value.to(parameters[name].device)
                optimizer.state[parameters[name]][kind] = moment


def evaluation_history_at(root: Path, step: int) -> EvaluationHistory:
    """The history of evaluations in the first `step` updates."""
    return EvaluationHistory(**_read(checkpoint_folder(root, step) / _CARD).get("course", {}))


def best_weights(root: Path, step: int, parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
    """The best weights of the first `step` updates for these parameters; empty if there are none."""
    with stored_state(checkpoint_folder(root, step)) as stored:
        if not any(name.startswith(f"{BEST}/") for name in stored):
            return {}
        return {name: part_like(stored[f"{BEST}/{name}"], parameter) for name, parameter in parameters.items()}


def checkpoint_folder(root: Path, step: int) -> Path:
    """The folder of the checkpoint after `step` updates."""
    return root / f"step-{step:08d}"


def _folders(root: Path) -> list[Path]:
    return sorted(root.glob(_NAMES))
