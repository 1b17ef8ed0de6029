"""What adding an expert to a model leaves as it was: every file and every tensor that was there (DEMix §6, law L8)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from engine.files import ArtifactRef
from engine.inference.loaded import LoadedBase, load_base


@dataclass(frozen=True)
class Untouched:
    """How many tensors a model had before an expert was added, and the names of those that are others now."""

    num_tensors: int
    changed: tuple[str, ...]


def add_and_compare(base: ArtifactRef, others: Mapping[str, ArtifactRef], key: str, newcomer: ArtifactRef) -> Untouched:
    """Adds the new expert to models of one other expert each, and compares every tensor's hash before and after.

    One after another, so that no more than two experts are in memory, however many there are.
    Raises DamagedFile, and ModelError when the new expert's own file names another base than this one.
    """
    base = ArtifactRef(base.folder, base.check())
    names: set[str] = set()
    changed: set[str] = set()
    for id, kept in others.items():
        before, after = _before_and_after(base, id, kept, key, newcomer)
        names |= before.keys()
        changed |= {name for name, sha256 in before.items() if after.get(name) != sha256}
    return Untouched(len(names), tuple(sorted(changed)))


def _before_and_after(
    base: ArtifactRef, id: str, kept: ArtifactRef, key: str, newcomer: ArtifactRef
) -> tuple[dict[str, str], dict[str, str]]:
    """The hashes of a model of one expert, without the new one and with it; the model is gone afterwards."""
    hosted = load_base(base, {id: kept})
    before = tensor_hashes(hosted)
    hosted.add({key: newcomer})
    return before, tensor_hashes(hosted)


def tensor_hashes(hosted: LoadedBase) -> dict[str, str]:
    """The SHA-256 of the bytes of every tensor, by name."""
    return {
        name: hashlib.sha256(tensor.detach().cpu().contiguous().numpy().tobytes()).hexdigest()
        for name, tensor in hosted.tensors().items()
    }
