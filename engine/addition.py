"""What adding an expert to a model leaves as it was: every file and every tensor that was there (DEMix §6, law L8)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from engine.files import Kept
from engine.models.demix import DemixModel
from engine.models.demix_files import load_demix, read_expert


@dataclass(frozen=True)
class Untouched:
    """How many tensors a model had before an expert was added, and the names of those that are others now."""

    num_tensors: int
    changed: tuple[str, ...]


def add_and_compare(base: Kept, others: Mapping[str, Kept], key: str, newcomer: Kept) -> Untouched:
    """Loads a model of the other experts, adds the new one, and compares every tensor's hash before and after.

    Raises DamagedFile, and ModelError when the new expert's own file names another base than this one.
    """
    model = load_demix(base, others)
    before = tensor_hashes(model)
    model.add_expert(key, state=read_expert(newcomer, base.check()))
    after = tensor_hashes(model)
    return Untouched(len(before), tuple(name for name, sha256 in before.items() if after.get(name) != sha256))


def tensor_hashes(model: DemixModel) -> dict[str, str]:
    """The SHA-256 of the bytes of every tensor, by name."""
    return {
        name: hashlib.sha256(tensor.detach().cpu().contiguous().numpy().tobytes()).hexdigest()
        for name, tensor in model.state_dict().items()
    }
