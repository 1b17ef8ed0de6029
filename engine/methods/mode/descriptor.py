"""MoDE: experts of transformer layers and a gate, beside a frozen backbone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.methods.mode import flops
from engine.methods.mode.config import ModeConfig
from engine.methods.parts.method import Learning, PartsMethod
from engine.models.flops import Shape

if TYPE_CHECKING:
    from engine.methods.mode.model import ModeModel
    from engine.methods.mode.sharding.launch import ModeTraining
    from engine.methods.parts.part_set import PartSet
    from engine.methods.parts.training import TrainingData, TrainingRun
    from engine.text.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Mode(PartsMethod):
    """Each expert is trained for itself; composed, several are the parts of one."""

    def new_model(self, lm: Any, config: ModeConfig) -> ModeModel:
        from engine.methods.mode.model import ModeModel

        return ModeModel(lm, config.num_blocks)

    def training(self, part_set: PartSet, data: TrainingData, run: TrainingRun, tokenizer: Tokenizer) -> ModeTraining:
        from engine.methods.mode.sharding.launch import ModeTraining

        return ModeTraining(part_set, data, run, tokenizer)

    def base_complaints(self, config: ModeConfig, shape: Shape, seed: str) -> list[str]:
        if config.num_blocks <= shape.num_layers:
            return []
        problem = f"Blocks of the backbone (--blocks) must be at most the {shape.num_layers} layers of “{seed}”"
        return [f"{problem}, not {config.num_blocks}: choose fewer."]

    def describe_part(self, config: ModeConfig) -> dict[str, Any]:
        return {"blocks": config.num_blocks, "layers in each block": config.expert_layers}

    def starts_alike(self, config: ModeConfig) -> bool:
        return config.init == "copy"

    def count_forward_flops(self, shape: Shape, context: int, parts: Sequence[ModeConfig]) -> int:
        return flops.forward_flops(shape, context, parts)

    def count_training_flops(self, shape: Shape, context: int, parts: Sequence[ModeConfig], learning: Learning) -> int:
        return flops.training_flops(shape, context, parts, learning)


METHOD = Mode(
    name="mode",
    title="MoDE",
    sentence="each domain has transformer layers and a gate of its own, beside a seed that stays as it is",
    paper="MoDE, §3",
    expert_words="layers and gates",
    shared_words="the backbone beside them",
    no_decoder_because="stands beside one",
    config=ModeConfig,
    config_field="shape",
    base_fields=("num_blocks",),
)
