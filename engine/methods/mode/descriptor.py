"""MoDE: experts of transformer layers and a gate, beside a frozen backbone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from engine.errors import TrainingError
from engine.files import ArtifactRef
from engine.methods.base import Method, StoredExpert
from engine.methods.mode import flops
from engine.methods.mode.config import ModeConfig
from engine.models.flops import Shape

if TYPE_CHECKING:
    import torch

    from engine.methods.mode.active_experts import ActiveExperts
    from engine.methods.mode.host import ModeHost


@dataclass(frozen=True, kw_only=True)
class Mode(Method):
    """Each expert is trained alone; composed, several are the parts of one."""

    def build(self, seed_folder: Path, keys: Sequence[str], config: Any = None, seed: int = 0) -> ActiveExperts:
        from engine.methods.mode.active_experts import ActiveExperts
        from engine.methods.mode.model import ModeModel
        from engine.models.families import load_model

        if len(keys) != 1:
            raise TrainingError(f"MoDE trains one expert at a time, not {len(keys)}.", "Give one key.")
        config = config or ModeConfig(seed=seed)
        model = ModeModel(load_model(seed_folder), config.num_blocks)
        model.add_expert(keys[0], config)
        return ActiveExperts(model, keys, keys[0])

    def save_expert(self, model: Any, key: str, folder: Path, *, base_sha256: str, tokenizer_sha256: str) -> None:
        from engine.methods.mode.files import save_parts

        parts = dict(zip(model.names, model.active, strict=True))
        save_parts(model.model, parts, folder, base_sha256=base_sha256, tokenizer_sha256=tokenizer_sha256)

    def open(self, base: ArtifactRef, device: torch.device | str) -> ModeHost:
        from engine.methods.mode.host import ModeHost

        return ModeHost(base, device)

    def forward_flops(self, shape: Shape, context: int, expert: StoredExpert) -> int:
        return flops.forward_flops(shape, context, _parts(expert.config))

    def adapting_flops(self, shape: Shape, context: int, expert: StoredExpert) -> int:
        return flops.training_flops(shape, context, _parts(expert.config)[:1])

    def composing_flops(self, shape: Shape, context: int, expert: StoredExpert) -> dict[str, int]:
        parts = _parts(expert.config)
        return {what: flops.training_flops(shape, context, parts, what) for what in get_args(flops.Learning)}


def _parts(config: Mapping[str, Any]) -> list[ModeConfig]:
    return [ModeConfig(**part["shape"]) for part in config["parts"]]


METHOD = Mode(
    name="mode",
    title="MoDE",
    sentence="each domain has transformer layers and a gate of its own, beside a seed that stays as it is",
    paper="MoDE, §3",
    expert_words="layers and gates",
    shared_words="the backbone beside them",
    is_joint=False,
    base_is_frozen=True,
    can_be_copied=False,
    no_decoder_because="stands beside one",
    has_parts=True,
    artifact_kind="mode-expert",
    config=ModeConfig,
    config_field="shape",
)
