"""Methods whose experts live in one model: each row of a batch uses one expert, and the rest is shared.

They share files, caches, training and mixing. What differs is where the modules of an expert lie: their `Placement`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.files import ArtifactRef, read_own
from engine.methods.base import Method, SeedOrigin, StoredExpert
from engine.models import flops
from engine.models.flops import Shape
from engine.plugins import load_object

if TYPE_CHECKING:
    import torch

    from engine.methods.multi_expert_files import MultiExpertHost
    from engine.models.expert_model import TrainableModel
    from engine.models.multi_expert import Placement

CARD_METHOD = "demix"  # in the cards of all of them
SHARED_FILE, BASE_CARD = "shared.safetensors", "base.json"
_OLDEST = "ffn"  # where experts are if nothing says so: such files are older than the choice
_ON_A_SEED = "adapter"


def is_seed(base: Path) -> bool:
    """Whether a base is an unchanged seed model."""
    return not (base / SHARED_FILE).exists()


def stored_placement(card: Mapping[str, Any], base: Path) -> str:
    """The stored placement of experts: from the base's card, or on a seed from the expert's ({}: unknown)."""
    of_base = base_card(base)
    if not of_base:
        return str(card.get("experts_in", _ON_A_SEED)) if is_seed(base) else _OLDEST
    return str(of_base["experts_in"])


def base_card(base: Path) -> dict[str, Any]:
    """The card of a base on its experts; empty where it has none: a seed, or files older than the card."""
    path = base / BASE_CARD
    if not path.exists():
        return {}
    return read_own(path, ["experts_in"])


@dataclass(frozen=True, kw_only=True)
class RowMethod(Method):
    """A method whose experts live in one model. `placement` names the class that inserts them, as `module:Class`."""

    experts_in: str  # the name of the placement in files
    placement: str
    frozen_flops: Callable[[Shape, int, int], int]  # to train only experts: (shape, context, parameters of one)
    extra_positions: int = 0  # that an expert takes of the model's context
    adds_to_base: bool = (
        False  # an expert's parameters are computed with in addition to the base's, not instead of them
    )

    @property
    def host_key(self) -> str:
        return f"rows: {self.experts_in}"

    def new_placement(self) -> Placement:
        """The placement of a model's experts."""
        placement: Placement = load_object(self.placement)(self)
        return placement

    def opens(self, card: Mapping[str, Any], base: Path) -> bool:
        is_rows = card.get("method", CARD_METHOD) == CARD_METHOD
        return is_rows and not self.method_of_copy and stored_placement(card, base) == self.experts_in

    def build(self, seed_folder: Path, keys: Sequence[str], config: Any = None, seed: int = 0) -> TrainableModel:
        from engine.models.families import load_model

        config = config or (self.config() if self.config else None)
        return self.new_placement().build(load_model(seed_folder), keys, config, seed)

    def load(self, base: ArtifactRef, experts: Mapping[str, ArtifactRef]) -> TrainableModel:
        from engine.methods.multi_expert_files import load_experts

        return load_experts(base, experts, self.new_placement())

    def load_full_model(self, base: ArtifactRef, expert: ArtifactRef) -> Any:
        from engine.methods.multi_expert_files import load_experts

        return load_experts(base, {"expert": expert}, self.new_placement()).full_model("expert")

    def take_in(
        self, seed: ArtifactRef, origin: SeedOrigin, lm: Any, folder: Path, key: str, changes: list[str]
    ) -> TrainableModel:
        from engine.models.multi_expert import MultiExpertModel

        return MultiExpertModel(lm, [key], self.new_placement())

    def save_base(self, model: Any, folder: Path) -> None:
        from engine.methods.multi_expert_files import save_base

        save_base(model, folder)

    def save_expert(self, model: Any, key: str, folder: Path, *, base_sha256: str, tokenizer_sha256: str) -> None:
        from engine.methods.multi_expert_files import save_expert

        save_expert(model, key, folder, base_sha256=base_sha256, tokenizer_sha256=tokenizer_sha256)

    def open(self, base: ArtifactRef, device: torch.device | str) -> MultiExpertHost:
        from engine.methods.multi_expert_files import MultiExpertHost

        return MultiExpertHost(base, device, self.new_placement)

    def trained_parameters(self, of_seed: int, shape: Shape, num_domains: int) -> int | None:
        if not self.in_place_of_base or (self.only_expert and self.balanced):
            return None
        num_experts = 1 if self.only_expert else num_domains
        return of_seed + (num_experts - 1) * shape.num_layers * shape.ffn // 2

    def forward_flops(self, shape: Shape, context: int, expert: StoredExpert) -> int:
        return flops.forward_flops(shape, context) + (2 * expert.num_parameters if self.adds_to_base else 0)

    def adapting_flops(self, shape: Shape, context: int, expert: StoredExpert) -> int:
        return self.frozen_flops(shape, context, expert.num_parameters)
