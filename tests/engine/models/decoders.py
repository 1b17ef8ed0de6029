"""Small decoders of every common family."""

from __future__ import annotations

from typing import Any

import torch
from transformers import (
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from engine.config import ModelConfig
from engine.models.families import fresh_model

VOCAB = 300


def decoder(family: str, num_layers: int = 2) -> Any:
    """A fresh model in evaluation mode, the same each time."""
    torch.manual_seed(3)
    sizes: dict[str, Any] = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": num_layers,
        "num_attention_heads": 2,
        "vocab_size": VOCAB,
    }
    others = {
        "mistral": lambda: MistralForCausalLM(MistralConfig(**sizes, num_key_value_heads=2)),
        "mixtral": lambda: MixtralForCausalLM(MixtralConfig(**sizes, num_key_value_heads=2, num_local_experts=4)),
        "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**sizes, num_key_value_heads=2)),
        "gpt_neox": lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**sizes)),
    }
    shape = ModelConfig(family=family, num_layers=num_layers, width=32, num_heads=2, ffn_width=64, max_positions=64)  # type: ignore[arg-type]
    lm = others[family]() if family in others else fresh_model(shape, VOCAB, seed=3)
    assert lm.config.model_type == family
    return lm.eval()
