"""MoDE: experts of transformer layers and a gate, next to a frozen backbone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.methods.mode import flops
from engine.methods.mode.config import ModeConfig
from engine.methods.parts.method import PartsMethod
from engine.models.flops import Shape


@dataclass(frozen=True, kw_only=True)
class Mode(PartsMethod):
    """Each expert is trained for itself; composed, several are the parts of one."""

    def base_complaints(self, config: ModeConfig, shape: Shape, seed: str) -> list[str]:
        if config.num_blocks <= shape.num_layers:
            return []
        problem = f"Blocks of the backbone (--blocks) must be at most the {shape.num_layers} layers of “{seed}”"
        return [f"{problem}, not {config.num_blocks}: choose fewer."]

    def trained_parameters(self, of_seed: int, shape: Shape, num_domains: int) -> int | None:
        del of_seed, num_domains  # one expert is trained at a time
        config = self.config()
        return int(config.num_blocks * (config.expert_layers * (shape.projections + shape.ffn) // 2 + shape.width))

    def describe_part(self, config: ModeConfig) -> dict[str, Any]:
        return {"blocks": config.num_blocks, "layers in each block": config.expert_layers}

    def starts_as_seed(self, config: ModeConfig) -> bool:
        return config.start == "backbone"

    def starts_alike(self, config: ModeConfig) -> bool:
        return config.init == "copy"


METHOD = Mode(
    name="mode",
    title="MoDE",
    sentence="each domain has transformer layers and a gate of its own, next to a seed that stays as it is",
    paper="MoDE, §3",
    expert_words="layers and gates",
    shared_words="the backbone next to them",
    no_decoder_because="stands next to one",
    config=ModeConfig,
    config_field="shape",
    model="engine.methods.mode.model:ModeModel",
    base_fields=("num_blocks",),
    training="engine.methods.mode.sharding.launch:ModeTraining",
    uses_processes=True,
    count_forward=flops.forward_flops,
    count_training=flops.training_flops,
)
