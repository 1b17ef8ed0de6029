"""Tensors in safetensors files, read one at a time and straight into their place in memory.

A mapped file would count twice until it is closed: its pages and the copies of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from engine.device import is_shapes_only

WRAPPERS = {  # segments of tensors' names that programs put there around a model, and whose they are
    "_orig_mod": "torch.compile",
    "module": "DistributedDataParallel or DeepSpeed",
    "_fsdp_wrapped_module": "FSDP",
    "_checkpoint_wrapped_module": "activation checkpointing",
    "language_model": "models that also read images",
}
_TYPES = {"F64": torch.float64, "F16": torch.float16, "BF16": torch.bfloat16}  # of shapes only


class StoredTensors(Mapping[str, Tensor]):
    """The tensors of some files by their names. Every access reads one again, so nothing else refers to it."""

    def __init__(self, *files: Path) -> None:
        opened: list[Any] = [safe_open(file, framework="pt", backend="pread") for file in files]
        self._files = {name: one for one in opened for name in one.keys()}  # noqa: SIM118 (it is not a mapping)

    def __getitem__(self, name: str) -> Tensor:
        if is_shapes_only():
            kind, shape = self.header(name)
            return torch.empty(shape, dtype=_TYPES.get(kind, torch.float32))
        tensor: Tensor = self._files[name].get_tensor(name)
        return tensor

    def header(self, name: str) -> tuple[str, tuple[int, ...]]:
        """The type of a tensor, such as `BF16`, and its shape; the tensor is not read."""
        stored = self._files[name].get_slice(name)
        return str(stored.get_dtype()), tuple(stored.get_shape())

    def __contains__(self, name: object) -> bool:
        return name in self._files  # a Mapping would read the tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def save_tensors(state: Mapping[str, Tensor], path: Path) -> None:
    """Writes tensors of any device into a file."""
    save_file({name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}, path)


class Unread:
    """A tensor that transformers reads when it has a place for it, by asking for all of it: `unread[...]`."""

    def __init__(self, tensors: Mapping[str, Tensor], name: str) -> None:
        self._tensors, self._name, self.was_read = tensors, name, False

    def __getitem__(self, _: object) -> Tensor:
        self.was_read = True
        return self._tensors[self._name]


def without_weights(module: nn.Module) -> dict[int, Any]:
    """The memo for `copy.deepcopy` with which a copy of the module gets uninitialized weights."""
    return {id(one): nn.Parameter(torch.empty_like(one), one.requires_grad) for one in module.parameters()}


@torch.no_grad()
def fill(targets: Mapping[str, Tensor], state: Mapping[str, Tensor], names: Collection[str] | None = None) -> list[str]:
    """Copies tensors into their places, one at a time: those of these names, or all.

    Answers with names that do not fit: lacking, unknown, or of another shape.
    """
    if wrong := sorted(set(targets) ^ set(state)):
        return wrong
    for name in targets if names is None else names:
        if (tensor := state[name]).shape != targets[name].shape:
            return [name]
        targets[name].copy_(tensor)
    return []


def is_same(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors have the same type, shape and values; `torch.equal` fails on two types."""
    return first.dtype == second.dtype and torch.equal(first, second)
