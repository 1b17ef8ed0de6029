"""Experts with parts on disk: a folder for each, with only its parts' layers and gates. safetensors and JSON only.

An expert that was trained for itself has one part; a composed one has several, each in a file of its own, since each
part's row of the gate is relative to the backbone and so goes with it. The backbone is any decoder's folder, and is
never written again: an expert's folder names it by the hash of its manifest, so that an expert of another backbone is
refused before its tensors are read.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from engine.errors import DamagedFileError, EngineError, ModelError
from engine.files import EXPERT_CARD, ArtifactRef
from engine.methods.parts.method import PartsMethod, part_file, parts_methods
from engine.methods.parts.parts_model import PartsModel
from engine.models.stored_tensors import StoredTensors


@dataclass(frozen=True)
class Part:
    """A part of a stored expert; `PartsModel.add_expert` takes shape and state."""

    name: str
    shape: Any
    state: Mapping[str, Tensor]


@dataclass(frozen=True)
class PartsCard:
    """The card of an expert with parts."""

    method: PartsMethod
    base_sha256: str
    shapes: Mapping[str, Any]  # of the parts by name

    @classmethod
    def read(cls, folder: Path) -> PartsCard:
        """Raises ModelError for an expert of a method without parts, DamagedFileError when the card cannot be read."""
        try:
            card = json.loads((folder / EXPERT_CARD).read_text(encoding="utf-8"))
            name = card["method"]
            if method := parts_methods().get(name):
                shapes = {part["name"]: method.config(**part["shape"]) for part in card["parts"]}
                return cls(method, card["base_sha256"], shapes)
        except (OSError, ValueError, KeyError, TypeError, EngineError) as error:
            raise DamagedFileError(
                f"{folder} has no valid {EXPERT_CARD} of an expert.", "Restore the expert."
            ) from error
        raise ModelError(
            f"The expert in {folder} has no parts: its method is “{name}”.",
            "Mix it on the base that it was trained on.",
        )


def save_parts(
    model: PartsModel, parts: Mapping[str, str], folder: Path, *, base_sha256: str, tokenizer_sha256: str
) -> None:
    """Writes some of a model's parts, their keys given by their names, into a folder as the parts of one expert."""
    for number, key in enumerate(parts.values()):
        save_part(model, key, folder / part_file(number))
    shapes = {name: model.shape_of(key) for name, key in parts.items()}
    _write_card(model.method_name, folder, shapes, base_sha256, tokenizer_sha256)


def save_part(model: PartsModel, key: str, path: Path) -> None:
    """Writes one of a model's parts into a file."""
    state = {name: tensor.detach().cpu().contiguous() for name, tensor in model.expert_state(key).items()}
    save_file(state, path)


def assemble(
    method: str, parts: Mapping[str, tuple[Any, Path]], folder: Path, *, base_sha256: str, tokenizer_sha256: str
) -> None:
    """Copies files of `save_part`, by the names of their parts, into a folder as the parts of one expert."""
    for number, (_, path) in enumerate(parts.values()):
        shutil.copyfile(path, folder / part_file(number))
    _write_card(method, folder, {name: shape for name, (shape, _) in parts.items()}, base_sha256, tokenizer_sha256)


def _write_card(method: str, folder: Path, shapes: Mapping[str, Any], base_sha256: str, tokenizer_sha256: str) -> None:
    card = {
        "method": method,
        "base_sha256": base_sha256,
        "tokenizer_sha256": tokenizer_sha256,
        "parts": [{"name": name, "shape": asdict(shape)} for name, shape in shapes.items()],
    }
    (folder / EXPERT_CARD).write_text(json.dumps(card, indent=1), encoding="utf-8")


def read_parts(expert: ArtifactRef, base_sha256: str, names: Collection[str] | None = None) -> list[Part]:
    """An expert's parts, or those of these names, after its bytes and its backbone were checked.

    Switching domain reads no more than this.

    Raises ModelError where it is of another backbone, DamagedFileError where the folder is not what was written.
    """
    expert.check()
    card = PartsCard.read(expert.folder)
    if card.base_sha256 != base_sha256:
        raise ModelError(
            f"The expert in {expert.folder} was trained on another backbone.",
            "Compose experts of the same backbone.",
        )
    return [
        Part(name, shape, StoredTensors(expert.folder / part_file(number)))
        for number, (name, shape) in enumerate(card.shapes.items())
        if names is None or name in names
    ]
