"""Sparse upcycling (Komatsuzaki et al. 2022), the baseline of C-BTM §6: copies every FFN and adds a router.

The model is one of transformers' own classes. Its routers start at random and its networks are alike; since the
weights of the networks that a token goes through sum to 1, it begins as the dense model that it was made of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from engine.config import MoeConfig
from engine.errors import ModelError
from engine.methods.demix.placement import FeedForward
from engine.models.families import one_at_a_time
from engine.models.multi_expert import MultiExpertModel


class Upcycled(FeedForward):
    """Experts placed as DEMix's, but each network is a mixture of experts with a router."""

    def build(self, lm: Any, keys: Sequence[str], config: MoeConfig, seed: int = 0) -> MultiExpertModel:
        return MultiExpertModel(upcycle(lm, config, seed), keys, self)


_UPCYCLED = ("llama", "mistral")  # attention, norms and positions are those of Mixtral
_SAME = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "hidden_act",
    "max_position_embeddings",
    "initializer_range",
    "rms_norm_eps",
    "tie_word_embeddings",
    "attention_dropout",
    "rope_parameters",
    "sliding_window",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
)


def upcycle(lm: Any, config: MoeConfig, seed: int = 0) -> Any:
    """A Mixtral model whose networks are all those of `lm`; the seed is that of its routers.

    Raises ModelError for a family that has no such counterpart.
    """
    _require_counterpart(lm)
    shared_config = {name: getattr(lm.config, name) for name in _SAME if hasattr(lm.config, name)}
    moe = _fresh(shared_config, config, seed, lm.dtype)
    state = lm.state_dict()
    with torch.no_grad():
        for name, tensor in moe.state_dict().items():
            if not name.endswith("mlp.gate.weight"):
                tensor.copy_(counterpart_tensor(state, name))
    return moe.to(lm.device).train(lm.training)


@one_at_a_time()
def _fresh(shared_config: dict[str, Any], config: MoeConfig, seed: int, dtype: torch.dtype) -> Any:
    from transformers import AutoModelForCausalLM, MixtralConfig

    shape = MixtralConfig(
        **shared_config,
        num_local_experts=config.num_experts,
        num_experts_per_tok=config.active_experts,
        router_aux_loss_coef=config.balance,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(shape, dtype=dtype)


def counterpart_tensor(state: Mapping[str, Tensor], name: str) -> Tensor:
    """The seed's tensor for this one; those of networks are repeated when they are copied."""
    if name.endswith("mlp.experts.gate_up_proj"):
        stem = name.removesuffix("experts.gate_up_proj")
        return torch.cat([state[f"{stem}gate_proj.weight"], state[f"{stem}up_proj.weight"]])
    if name.endswith("mlp.experts.down_proj"):
        return state[name.replace("experts.down_proj", "down_proj.weight")]
    return state[name]


def _require_counterpart(lm: Any) -> None:
    family = str(lm.config.model_type)
    if family not in _UPCYCLED:
        raise ModelError(
            f"A mixture of experts cannot be made of a seed of the family “{family}”: transformers has no mixture with "
            f"its attention and positions. Supported families: {', '.join(_UPCYCLED)}.",
            "Choose another seed, or the method dense.",
        )
    if getattr(lm.config, "attention_bias", False) or getattr(lm.config, "mlp_bias", False):
        raise ModelError(
            "A mixture of experts cannot be made of a seed with biases: Mixtral has none.",
            "Choose another seed, or the method dense.",
        )
