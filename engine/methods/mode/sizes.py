"""The sizes of a MoDE expert's parts, from the headers of their files: no tensor is read, torch is not imported."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path

from safetensors import SafetensorError, safe_open

from engine.errors import DamagedFileError
from engine.files import EXPERT_CARD


def part_file(number: int) -> str:
    """The name of a part's file, by its index."""
    return f"part-{number}.safetensors"


def part_sizes(folder: Path) -> dict[str, int]:
    """The number of parameters of each part, gates included, by name; raises DamagedFileError."""
    try:
        card = json.loads((folder / EXPERT_CARD).read_text(encoding="utf-8"))
        return {part["name"]: _size(folder / part_file(number)) for number, part in enumerate(card["parts"])}
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise DamagedFileError(f"{folder} has no valid {EXPERT_CARD} with its parts.", "Restore it.") from error


def _size(file: Path) -> int:
    with safe_open(file, framework="numpy") as tensors:
        return sum(prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())  # noqa: SIM118
