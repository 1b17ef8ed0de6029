"""All experts of one base in memory, whatever their method: the one place where a method chooses how it is loaded.

Experts that are rows of one model (DEMix layers, tokens, adapters) lie in that model. Those of MoDE stand beside their
backbone; those that divide it alike share it in memory, so switching domain reads an expert alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from engine.errors import ModelError
from engine.files import EXPERT_CARD, ArtifactRef
from engine.methods.mode.active_experts import ActiveExperts
from engine.methods.mode.files import open_backbone, read_parts
from engine.methods.mode.model import ModeModel
from engine.models.composite import CompositeModel
from engine.models.demix import MultiExpertModel
from engine.models.demix_files import load_demix, read_expert
from engine.models.expert_model import ExpertModel


class LoadedBase:
    """A base's experts by their keys. What it opens is a view for one request; the experts stay as they are."""

    def __init__(self, base: ArtifactRef, device: torch.device | str = "cpu") -> None:
        self._base = base
        self._device = torch.device(device)
        self._rows: MultiExpertModel | None = None
        self._backbones: dict[int, ModeModel] = {}  # by how many blocks they have
        self._parts: dict[str, tuple[ModeModel, dict[str, str]]] = {}  # of each expert: where, and their keys by names

    @property
    def keys(self) -> list[str]:
        """The experts in memory."""
        return [*(self._rows.keys if self._rows else ()), *self._parts]

    def add(self, experts: Mapping[str, ArtifactRef]) -> None:
        """Loads experts, every byte checked before use; raises ModelError where one is of another base."""
        of_mode = {key: kept for key, kept in experts.items() if _num_blocks(kept) is not None}
        rows = {key: kept for key, kept in experts.items() if key not in of_mode}
        if rows:
            self._add_rows(rows)
        for key, kept in of_mode.items():
            self._add_parts(key, kept)

    def _add_rows(self, experts: Mapping[str, ArtifactRef]) -> None:
        if self._rows is None:
            self._rows = load_demix(self._base, experts).to(self._device)
            return
        for key, kept in experts.items():
            self._rows.add_expert(key, state=read_expert(kept, str(self._base.sha256)))

    def _add_parts(self, key: str, kept: ArtifactRef) -> None:
        parts = read_parts(kept, str(self._base.sha256))  # all, before the first is added
        num_blocks = parts[0].shape.num_blocks
        model = self._backbones.get(num_blocks)
        if model is None:
            model = self._backbones[num_blocks] = open_backbone(self._base, num_blocks).to(self._device)
        keys = {part.name: f"{key}-{number}" for number, part in enumerate(parts)}
        try:
            for part in parts:
                model.add_expert(keys[part.name], part.shape, part.state)
        except BaseException:  # no half of an expert stays
            for held in set(keys.values()) & set(model.keys):
                model.remove_expert(held)
            raise
        self._parts[key] = model, keys

    def view(self, keys: Sequence[str], parts: Mapping[str, Sequence[str]] | None = None) -> ExpertModel:
        """Some of the experts, for one request. `parts` names those of an expert of MoDE that are active (else all)."""
        in_rows = [key for key in keys if key not in self._parts]
        models: list[Any] = [self._rows] if in_rows and self._rows else []
        models += [self._active(key, (parts or {}).get(key)) for key in keys if key in self._parts]
        if len(models) == 1:
            return models[0]  # type: ignore[no-any-return]
        return CompositeModel(models)

    def _active(self, key: str, names: Sequence[str] | None) -> ActiveExperts:
        model, keys = self._parts[key]
        chosen = list(keys) if names is None else list(names)
        if strangers := [name for name in chosen if name not in keys]:
            raise ModelError(f"There is no part “{strangers[0]}” in this expert.", f"It has: {', '.join(keys)}.")
        return ActiveExperts(model, [keys[name] for name in chosen], key, names=chosen)

    def tensors(self) -> dict[str, Tensor]:
        """All tensors in memory by their names; those of a backbone say into how many blocks it is divided."""
        found: dict[str, Tensor] = self._rows.state_dict() if self._rows is not None else {}
        for num_blocks, model in self._backbones.items():
            found |= {f"{num_blocks} blocks: {name}": tensor for name, tensor in model.state_dict().items()}
        return found

    def coming_bytes(self, experts: Mapping[str, ArtifactRef]) -> int:
        """Bytes that these experts would take, each body that they need and is not there yet with them."""
        bodies = {_num_blocks(kept) for kept in experts.values()}
        there = {*self._backbones, *((None,) if self._rows is not None else ())}
        return stored_bytes(*[self._base] * len(bodies - there), *experts.values())

    def num_bytes(self) -> int:
        """Bytes of all parameters."""
        models = [*([self._rows] if self._rows else []), *self._backbones.values()]
        return sum(parameter.nbytes for model in models for parameter in model.parameters())


def load_base(base: ArtifactRef, experts: Mapping[str, ArtifactRef], device: torch.device | str = "cpu") -> LoadedBase:
    """These experts of a base, loaded; raises ModelError when there is none."""
    if not experts:
        raise ModelError("A model must have at least one expert, but none was given.", "Choose an expert.")
    hosted = LoadedBase(base, device)
    hosted.add(experts)
    return hosted


def stored_bytes(*kept: ArtifactRef) -> int:
    """Bytes of the tensors in folders, which are kept in the precision that they are loaded in."""
    return sum(file.stat().st_size for one in kept for file in one.folder.glob("*.safetensors"))


def _num_blocks(expert: ArtifactRef) -> int | None:
    """Into how many blocks one of MoDE divides its backbone; None of any other.

    A card that cannot be read is left to those who check it.
    """
    try:
        card = json.loads((expert.folder / EXPERT_CARD).read_text(encoding="utf-8"))
        return int(card["parts"][0]["shape"]["num_blocks"]) if card["method"] == "mode" else None
    except (OSError, ValueError, LookupError, TypeError):
        return None
