"""Checks that a mixture without an expert is bit-identical to one that never loaded it (DEMix §7, law L7).

Two mixtures are compared by forward passes: one loads the expert and leaves it out, the other never loads it. Only one
is in memory at a time: the distributions of the first are written to disk, then compared with the second.
Shapes: E remaining experts, T positions, V vocabulary.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.errors import ScoresError
from engine.events import Progress
from engine.files import ArtifactRef
from engine.inference.ensemble import Models, as_ensemble
from engine.loading.loaded_base import load_base
from engine.mixing.base import Gate, mix

Block = NDArray[Any]  # tokens: all but the last are input, all but the first are predicted
_CHUNK_ELEMENTS = 1 << 24  # log-probabilities (E × T × V) of one model held at once: 64 MiB


@dataclass(frozen=True)
class Identity:
    """Log-probabilities of two mixtures and their experts on the same text, compared bit for bit."""

    num_tokens: int
    num_numbers: int
    num_different: int
    num_not_finite: int  # in either model: such numbers prove nothing
    largest_difference: float | None  # nats; None when not finite

    @property
    def holds(self) -> bool:
        """True when all compared numbers are finite and equal."""
        return self.num_numbers > 0 and self.num_different == self.num_not_finite == 0


def choose_blocks(
    texts: Sequence[NDArray[Any]], block_size: int, num_experts: int, vocab_size: int, num_blocks: int = 4
) -> list[Block]:
    """The first `num_blocks` blocks of each text (flat arrays of tokens), shortened for a large vocabulary.

    Raises ScoresError when no text has two tokens.
    """
    size = min(block_size, max(1, _CHUNK_ELEMENTS // (num_experts * vocab_size)))
    blocks = [text[at : at + size + 1] for text in texts for at in range(0, len(text) - 1, size)[:num_blocks]]
    if not blocks:
        raise ScoresError("The text has fewer than 2 tokens.", "Import more text.")
    return blocks


def write_distributions(
    models: Models, left: Sequence[str], gate: Gate, blocks: Sequence[Block], folder: Path
) -> Iterator[Progress]:
    """Writes the full distributions of the experts `left` and of their mixture by `gate` on each block."""
    for number, block in enumerate(blocks):
        for file, logprobs in zip(_places(folder, number), _distributions(models, left, gate, block), strict=True):
            np.save(file, logprobs.cpu().numpy())
        yield Progress(number + 1, len(blocks), "blocks", "writing the mixture's distributions without the expert")


def compare_bits(
    never: Models, left: Sequence[str], gate: Gate, blocks: Sequence[Block], folder: Path
) -> Iterator[Progress | Identity]:
    """Yields progress, then one Identity: the mixture that never loaded the expert against the distributions on disk.

    Deletes the files as they are read.
    """
    num_numbers = num_different = num_not_finite = 0
    largest = 0.0
    for number, block in enumerate(blocks):
        for file, logprobs in zip(_places(folder, number), _distributions(never, left, gate, block), strict=True):
            without, never_loaded = torch.from_numpy(np.load(file, allow_pickle=False)), logprobs.cpu()
            file.unlink()
            num_numbers += without.numel()
            num_not_finite += int((~(without.isfinite() & never_loaded.isfinite())).sum())
            differ = without.view(torch.int32) != never_loaded.view(torch.int32)
            num_different += int(differ.sum())
            if differ.any():
                largest = max(largest, float((without - never_loaded)[differ].abs().nan_to_num(nan=math.inf).max()))
        yield Progress(number + 1, len(blocks), "blocks", "comparing with the mixture that never loaded it")
    yield Identity(
        sum(len(block) - 1 for block in blocks),
        num_numbers,
        num_different,
        num_not_finite,
        largest if math.isfinite(largest) else None,
    )


def _places(folder: Path, number: int) -> tuple[Path, Path]:
    """The files of a block: the experts' and their mixture's."""
    return folder / f"{number}-experts.npy", folder / f"{number}-mixture.npy"


@torch.inference_mode()
def _distributions(models: Models, keys: Sequence[str], gate: Gate, block: NDArray[Any]) -> tuple[Tensor, Tensor]:
    """Log-probabilities of each expert [E, T, V] and of the mixture [T, V], each position from the previous ones."""
    ids = torch.from_numpy(block.astype(np.int64))
    logprobs_ETV = as_ensemble(models, keys).logprobs(keys, ids[:-1])
    ids = ids.to(logprobs_ETV.device)
    observed_ET = logprobs_ETV.gather(-1, ids[1:].expand(len(keys), -1)[..., None])[..., 0]
    log_weights_ET = gate.block(observed_ET[:, None].cpu())[:, 0]
    return logprobs_ETV, mix(log_weights_ET, logprobs_ETV)


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
    before = tensor_hashes(loaded.tensors())
    loaded.add({key: newcomer})
    return before, tensor_hashes(loaded.tensors())


def tensor_hashes(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """The SHA-256 of the bytes of every tensor, by name."""
    return {
        name: hashlib.sha256(tensor.detach().cpu().contiguous().numpy().tobytes()).hexdigest()
        for name, tensor in tensors.items()
    }
