"""Sparse upcycling (Komatsuzaki et al. 2022), the baseline of C-BTM §6: every FFN becomes several copies and a router.

The model is one of transformers' own classes. Its routers start at random and its networks are alike; since the
weights of the networks that a token goes through sum to 1, it begins as the dense model that it was made of.

Shapes: X experts of a layer, N tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from engine.config import MoeConfig
from engine.errors import ModelError

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
    told = {name: getattr(lm.config, name) for name in _SAME if hasattr(lm.config, name)}
    moe = _fresh(told, config, seed)
    state = lm.state_dict()
    with torch.no_grad():
        for name, tensor in moe.state_dict().items():
            if not name.endswith("mlp.gate.weight"):
                tensor.copy_(_part(state, name))
    return moe.to(lm.device).train(lm.training)


def _fresh(told: dict[str, Any], config: MoeConfig, seed: int) -> Any:
    from transformers import AutoModelForCausalLM, MixtralConfig

    shape = MixtralConfig(
        **told,
        num_local_experts=config.num_experts,
        num_experts_per_tok=config.active_experts,
        router_aux_loss_coef=config.balance,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(shape, dtype=torch.float32)


def _part(state: dict[str, Tensor], name: str) -> Tensor:
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
            f"A mixture of experts must be made of a seed of one of the families {', '.join(_UPCYCLED)}, but this one "
            f"is of “{family}”: transformers has no mixture with its attention and positions.",
            "Choose another seed, or the method dense.",
        )
    if getattr(lm.config, "attention_bias", False) or getattr(lm.config, "mlp_bias", False):
        raise ModelError(
            "A mixture of experts must be made of a seed without biases, but this one has some: Mixtral has none.",
            "Choose another seed, or the method dense.",
        )


class Balance:
    """What the routers of a model said in one forward pass."""

    def __init__(self, lm: Any) -> None:
        self._config, self.logits_NX = lm.config, list[Tensor]()

    def loss(self) -> Tensor | float:
        """The weighted loss that is least when every network has as many tokens; 0 where nothing was routed."""
        if not self.logits_NX:
            return 0.0
        from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

        layers: Any = tuple(self.logits_NX)
        found = load_balancing_loss_func(layers, self._config.num_local_experts, self._config.num_experts_per_tok)
        return found * float(self._config.router_aux_loss_coef)


@contextmanager
def listening_to_routers(lm: Any) -> Iterator[Balance]:
    """Takes down what the routers say; a model without routers says nothing."""
    balance = Balance(lm)
    hooks = [
        module.register_forward_hook(lambda _module, _inputs, out: balance.logits_NX.append(out[0]))
        for module in routers(lm)
    ]
    try:
        yield balance
    finally:
        for hook in hooks:
            hook.remove()


def routers(lm: nn.Module) -> list[nn.Module]:
    """The routers of a Mixtral model, layer by layer; of any other none."""
    if getattr(getattr(lm, "config", None), "model_type", "") != "mixtral":
        return []
    from transformers.models.mixtral.modeling_mixtral import MixtralTopKRouter

    return [module for module in lm.modules() if isinstance(module, MixtralTopKRouter)]
