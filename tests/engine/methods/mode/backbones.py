"""Small decoders of every family, and MoDE models on them whose experts really differ."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch

from engine.methods.mode.config import ModeConfig
from engine.methods.mode.model import ModeModel
from tests.engine.models.decoders import VOCAB, decoder
from tests.engine.models.tiny_families import COMMON

FAMILIES = sorted(COMMON)
LAYERS = 5
SHAPE = ModeConfig(num_blocks=2, expert_layers=2)


def backbone(family: str = "llama") -> Any:
    """Five layers, so that no number of blocks but one and five comes out even; with weights that say something."""
    lm = decoder(family, LAYERS)
    with torch.no_grad():
        for parameter in lm.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return lm


def mode_model(keys: Sequence[str], family: str = "llama", config: ModeConfig = SHAPE) -> ModeModel:
    """A model whose experts and gates were trained by chance, each the same whichever others there are."""
    model = ModeModel(backbone(family), config.num_blocks).eval()
    for key in keys:
        model.add_expert(key, config)
        generator = torch.Generator().manual_seed(sum(map(ord, key)))
        with torch.no_grad():
            for name, parameter in model.expert_parameters(key).items():
                size = 0.02 if name.endswith("odds") else 0.1
                parameter.add_(torch.randn(parameter.shape, generator=generator) * size)
    return model


def with_common_kernels(lm: Any) -> None:
    """Lets a model compute by what every device has: fused kernels differ, or are missing, from device to device."""
    lm.set_attn_implementation("eager")
    if lm.config.model_type == "mixtral":
        lm.set_experts_implementation("batched_mm")


def dropping(model: ModeModel, share: float) -> ModeModel:
    """The model, whose layers and embeddings drop out this share of their activations in training mode."""
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = share
        for name in {"dropout", "attention_dropout"} & vars(module).keys():  # of families without such modules
            setattr(module, name, share)
    return model


def some_ids(num_rows: int = 3, length: int = 12, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, VOCAB, (num_rows, length), generator=torch.Generator().manual_seed(seed))


def plain_logits(lm: Any, ids: torch.Tensor) -> torch.Tensor:
    return copy.deepcopy(lm)(input_ids=ids, use_cache=False).logits
