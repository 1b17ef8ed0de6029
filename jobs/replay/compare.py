"""Compares what a replay made with what is stored, to the bit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from engine.files import sha256_of
from jobs.attempt.reporting import Point
from workbench.answers.integrity import LossDifference, TensorDifference

_SPEEDS = ("tokens_per_second", "flops_per_second")
Points = Mapping[tuple[str, int], float]  # values by metric and step


def compare_weights(thing: str, stored: Path, made: Path) -> tuple[int, list[TensorDifference]]:
    """The number of tensors of an artifact, and those that differ; files with equal bytes are not read as tensors."""
    count = 0
    different: list[TensorDifference] = []
    names = {path.relative_to(folder) for folder in (stored, made) for path in folder.rglob("*.safetensors")}
    for name in sorted(names):
        one, other = stored / name, made / name
        count += len(_names(other)) if other.is_file() else 0
        if not (one.is_file() and other.is_file() and sha256_of(one) == sha256_of(other)):
            different += _tensor_differences(thing, one, other)
    return count, different


def compare_points(stored: Points, made: Sequence[Point]) -> tuple[int, list[LossDifference]]:
    """The number of points that both have, and those that differ; speeds are left out."""
    pairs = [
        LossDifference(metric=name, step=step, stored=stored[name, step], replayed=value)
        for name, step, value in made
        if name not in _SPEEDS and (name, step) in stored
    ]
    return len(pairs), [pair for pair in pairs if pair.stored != pair.replayed]


def _tensor_differences(thing: str, stored: Path, made: Path) -> Iterator[TensorDifference]:
    for path, problem in ((stored, "its file is missing"), (made, "the training makes no such file")):
        if not path.is_file():
            yield TensorDifference(thing=thing, tensor=path.name, largest=None, problem=problem)
            return
    try:
        for name in sorted(_names(stored) | _names(made)):
            largest, problem = _difference(stored, made, name)
            if largest or problem:
                yield TensorDifference(thing=thing, tensor=name, largest=largest, problem=problem)
    except (SafetensorError, OSError) as error:
        yield TensorDifference(thing=thing, tensor=stored.name, largest=None, problem=f"cannot be read ({error})")


def _difference(stored: Path, made: Path, name: str) -> tuple[float | None, str]:
    """The largest absolute difference of a tensor in two files, and why there is none; infinite where one is NaN."""
    if name not in _names(stored):
        return None, "it is missing"
    if name not in _names(made):
        return None, "the training makes no such tensor"
    one, other = _tensor(stored, name), _tensor(made, name)
    if one.shape != other.shape or one.dtype != other.dtype:
        return None, f"{one.dtype} {tuple(one.shape)} is stored, the training makes {other.dtype} {tuple(other.shape)}"
    if torch.equal(one.view(-1).view(torch.uint8), other.view(-1).view(torch.uint8)):
        return 0.0, ""
    largest = (one.double() - other.double()).abs().max().nan_to_num(nan=float("inf"))
    return float(largest), "" if largest else "only signs of zeros differ"


def _names(path: Path) -> set[str]:
    with safe_open(path, "pt") as file:
        return set(file.keys())


def _tensor(path: Path, name: str) -> torch.Tensor:
    with safe_open(path, "pt") as file:
        tensor: torch.Tensor = file.get_tensor(name)
        return tensor
