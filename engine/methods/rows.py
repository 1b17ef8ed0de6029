"""Methods whose experts live in one model: each row of a batch uses one expert, and the rest is shared.

They share files, caches, training and mixing. What differs is where the modules of an expert lie: their `Placement`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import DamagedFile
from engine.files import ArtifactRef
from engine.methods.base import Method, StoredExpert
from engine.models import flops
from engine.models.flops import Shape

if TYPE_CHECKING:
    import torch

    from engine.models.demix import Placement
    from engine.models.multi_expert_host import MultiExpertHost
    from engine.training.trainable_model import TrainableModel

CARD_METHOD = "demix"  # in the cards of all of them
SHARED_FILE, BASE_CARD = "shared.safetensors", "base.json"
_OLDEST = "ffn"  # the placement of files from before there was a choice
_ON_A_SEED = "adapter"


@dataclass(frozen=True, kw_only=True)
class RowMethod(Method):
    """A method whose experts live in one model. `placement` names the class that inserts them, as `module:Class`."""

    experts_in: str  # the name of the placement in files
    placement: str
    frozen_flops: Callable[[Shape, int, int], int]  # to train experts alone: (shape, context, parameters of one)
    extra_positions: int = 0  # that an expert takes of the model's context
    adds_to_base: bool = False  # an expert's parameters are computed with beside the base's, not instead of them

    @property
    def host_key(self) -> str:
        return f"rows: {self.experts_in}"

    def new_placement(self) -> Placement:
        """The placement of a model's experts."""
        module, _, name = self.placement.partition(":")
        placement: Placement = getattr(import_module(module), name)(self)
        return placement

    def opens(self, card: Mapping[str, Any], base: Path) -> bool:
        is_rows = card.get("method", CARD_METHOD) == CARD_METHOD
        return is_rows and not self.method_of_copy and stored_placement(card, base) == self.experts_in

    def build(self, seed_folder: Path, keys: Sequence[str], config: Any = None, seed: int = 0) -> TrainableModel:
        from engine.models.families import load_model

        config = config or (self.config() if self.config else None)
        return self.new_placement().build(load_model(seed_folder), keys, config, seed)

    def load(self, base: ArtifactRef, experts: Mapping[str, ArtifactRef]) -> TrainableModel:
        from engine.models.demix_files import load_demix

        return load_demix(base, experts)

    def load_full_model(self, base: ArtifactRef, expert: ArtifactRef) -> Any:
        from engine.models.demix_files import load_demix

        return load_demix(base, {"expert": expert}).full_model("expert")

    def save_base(self, model: Any, folder: Path) -> None:
        from engine.models.demix_files import save_base

        save_base(model, folder)

    def save_expert(self, model: Any, key: str, folder: Path, *, base_sha256: str, tokenizer_sha256: str) -> None:
        from engine.models.demix_files import save_expert

        save_expert(model, key, folder, base_sha256=base_sha256, tokenizer_sha256=tokenizer_sha256)

    def open(self, base: ArtifactRef, device: torch.device | str) -> MultiExpertHost:
        from engine.models.multi_expert_host import MultiExpertHost

        return MultiExpertHost(base, device)

    def forward_flops(self, shape: Shape, context: int, expert: StoredExpert) -> int:
        return flops.forward_flops(shape, context) + (2 * expert.num_parameters if self.adds_to_base else 0)

    def adapting_flops(self, shape: Shape, context: int, expert: StoredExpert) -> int:
        return self.frozen_flops(shape, context, expert.num_parameters)


def is_seed(base: Path) -> bool:
    """Whether a base is an unchanged seed model."""
    return not (base / SHARED_FILE).exists()


def stored_placement(card: Mapping[str, Any], base: Path) -> str:
    """The placement of experts on a base: stored with the base, or for a seed in the expert's card ({}: unknown)."""
    path = base / BASE_CARD
    if not path.exists():
        return str(card.get("experts_in", _ON_A_SEED)) if is_seed(base) else _OLDEST
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["experts_in"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DamagedFile(f"{path} does not name the placement of experts.", "Restore it.") from error
