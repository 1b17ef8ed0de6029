"""Experts with parts on disk and in memory: a folder for each, with only its parts. safetensors and JSON only.

An expert that was trained for itself has one part; a composed one has several, each in a file of its own, since each
part's row of the gate is relative to the backbone and so goes with it. The backbone is any decoder's folder, and is
never written again: an expert's folder names it by the hash of its manifest, so that an expert of another backbone is
refused before its tensors are read.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from engine.errors import DamagedFileError, EngineError, ModelError
from engine.files import EXPERT_CARD, ArtifactRef
from engine.methods.parts.method import PartsMethod, part_file, parts_methods
from engine.methods.parts.parts_model import ActiveParts, PartsModel
from engine.models.expert_model import ExpertModel
from engine.models.stored_tensors import StoredTensors, save_tensors


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
        """Raises ModelError for an expert without parts, DamagedFileError when the card cannot be read."""
        try:
            card = json.loads((folder / EXPERT_CARD).read_text(encoding="utf-8"))
            name = card["method"]
            if (method := parts_methods().get(name)) and card["parts"]:
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
        save_tensors(model.expert_state(key), folder / part_file(number))
    shapes = {name: model.shape_of(key) for name, key in parts.items()}
    _write_card(model.method_name, folder, shapes, base_sha256, tokenizer_sha256)


def assemble(
    method: str, parts: Mapping[str, tuple[Any, Path]], folder: Path, *, base_sha256: str, tokenizer_sha256: str
) -> None:
    """Copies files of parts, by the parts' names, into a folder as the parts of one expert."""
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


class PartsHost:
    """Holds a backbone for each `describe_base` of its experts, with their parts."""

    def __init__(self, method: PartsMethod, base: ArtifactRef, device: torch.device | str) -> None:
        self._method, self._base, self._device = method, base, device
        self._backbones: dict[str, PartsModel] = {}  # by description
        self._parts: dict[str, tuple[PartsModel, dict[str, str]]] = {}  # of each expert: where, and their keys by names

    @property
    def keys(self) -> list[str]:
        return list(self._parts)

    def add(self, experts: Mapping[str, ArtifactRef]) -> None:
        for key, kept in experts.items():
            parts = read_parts(kept, str(self._base.sha256))  # all, before the first is added
            described = self._method.describe_base(parts[0].shape)
            if described not in self._backbones:
                self._backbones[described] = self._method.open_base(self._base, parts[0].shape).to(self._device)
            model = self._backbones[described]
            keys = {part.name: f"{key}-{number}" for number, part in enumerate(parts)}
            try:
                for part in parts:
                    model.add_expert(keys[part.name], part.shape, part.state)
            except BaseException:  # no half of an expert stays
                for held in set(keys.values()) & set(model.keys):
                    model.remove_expert(held)
                raise
            self._parts[key] = model, keys

    def view(self, keys: Sequence[str], parts: Mapping[str, Sequence[str]]) -> list[ExpertModel]:
        return [self._active(key, parts.get(key)) for key in keys]

    def _active(self, key: str, names: Sequence[str] | None) -> ActiveParts:
        model, keys = self._parts[key]
        chosen = list(keys) if names is None else list(names)
        if unknown := [name for name in chosen if name not in keys]:
            raise ModelError(f"There is no part “{unknown[0]}” in this expert.", f"It has: {', '.join(keys)}.")
        return ActiveParts(model, [keys[name] for name in chosen], key, names=chosen)

    def tensors(self) -> dict[str, Tensor]:
        return {
            f"{described}: {name}": tensor
            for described, model in self._backbones.items()
            for name, tensor in model.state_dict().items()
        }

    def modules(self) -> list[nn.Module]:
        return list(self._backbones.values())

    def num_parameters(self, key: str) -> int:
        model, keys = self._parts[key]
        return sum(map(model.num_added, keys.values()))

    def num_bodies_to_load(self, experts: Mapping[str, ArtifactRef]) -> int:
        return len({self._description_of(kept) for kept in experts.values()} - {*self._backbones})

    def _description_of(self, expert: ArtifactRef) -> str | None:
        """The description of an expert's backbone; None if its card cannot be read."""
        with suppress(EngineError):
            return self._method.describe_base(next(iter(PartsCard.read(expert.folder).shapes.values())))
        return None

    def num_bytes(self) -> int:
        return sum(parameter.nbytes for model in self._backbones.values() for parameter in model.parameters())
