"""Checks that adding an expert changes no tensor of a model (DEMix §6, law L8)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from engine.files import ArtifactRef
from engine.loading.loaded_base import LoadedBase, load_base


@dataclass(frozen=True)
class Untouched:
    """The number of tensors before an expert was added, and the names of those that changed."""

    num_tensors: int
    changed: tuple[str, ...]


def add_and_compare(base: ArtifactRef, others: Mapping[str, ArtifactRef], key: str, newcomer: ArtifactRef) -> Untouched:
    """Adds the new expert to a model of each other expert in turn, and compares every tensor's hash before and after.

    No more than two experts are in memory at a time.
    Raises DamagedFileError, and ModelError when the new expert was trained for another base.
    """
    base = ArtifactRef(base.folder, base.check())
    names: set[str] = set()
    changed: set[str] = set()
    for id, expert in others.items():
        before, after = _before_and_after(base, id, expert, key, newcomer)
        names |= before.keys()
        changed |= {name for name, sha256 in before.items() if after.get(name) != sha256}
    return Untouched(len(names), tuple(sorted(changed)))


def _before_and_after(
    base: ArtifactRef, id: str, expert: ArtifactRef, key: str, newcomer: ArtifactRef
) -> tuple[dict[str, str], dict[str, str]]:
    """The tensor hashes of a model of one expert, before and after the new one is added."""
    loaded = load_base(base, {id: expert})
    before = tensor_hashes(loaded)
    loaded.add({key: newcomer})
    return before, tensor_hashes(loaded)


def tensor_hashes(loaded: LoadedBase) -> dict[str, str]:
    """The SHA-256 of the bytes of every tensor, by name."""
    return {
        name: hashlib.sha256(tensor.detach().cpu().contiguous().numpy().tobytes()).hexdigest()
        for name, tensor in loaded.tensors().items()
    }
