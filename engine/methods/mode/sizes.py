"""How large the parts of an expert of MoDE are, by the headers of their files: no tensor is read, torch sleeps on."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path

from safetensors import SafetensorError, safe_open

from engine.errors import DamagedFile
from engine.files import EXPERT_CARD


def part_file(number: int) -> str:
    """The file of a part, by its place."""
    return f"part-{number}.safetensors"


def part_sizes(folder: Path) -> dict[str, int]:
    """How many parameters each part added, its gates' included, by its name; raises DamagedFile."""
    try:
        card = json.loads((folder / EXPERT_CARD).read_text(encoding="utf-8"))
        return {part["name"]: _size(folder / part_file(number)) for number, part in enumerate(card["parts"])}
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise DamagedFile(
            f"{folder} must hold an expert's {EXPERT_CARD} and its parts, but does not.", "Restore it."
        ) from error


def _size(file: Path) -> int:
    with safe_open(file, framework="numpy") as tensors:
        return sum(prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())  # noqa: SIM118
