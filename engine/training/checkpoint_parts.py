"""The tensors of a checkpoint: in the files of one process, or in one file of each process that trains together.

A process writes what it holds, so nothing is gathered. Of a divided tensor that is a range of rows; a list beside the
file says where it begins. Whoever reads gets whole tensors, one at a time, so a training resumes on any number of
processes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from engine.files import sha256_of, sync
from engine.training.local_parts import first_row, local_part

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


def hashes_of_parts(folder: Path, num_parts: int) -> dict[str, str]:
    """The SHA-256 of the files that processes wrote, as they say themselves."""
    hashes: dict[str, str] = {}
    for file, about in map(_part_names, range(num_parts)):
        hashes |= {file: _read(folder / about)["sha256"], about: sha256_of(folder / about)}
    return hashes


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
    """The file of a process, and the list beside it."""
    return f"part-{rank:05d}.safetensors", f"part-{rank:05d}.json"


def _read(about: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(about.read_text(encoding="utf-8"))
    return content
