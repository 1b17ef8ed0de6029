"""The routers of a decoder that is a mixture of experts, and the loss that spreads tokens evenly over its networks.

Shapes: X experts of a layer, N tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn


class RouterLosses:
    """The logits of a model's routers in one forward pass."""

    def __init__(self, lm: Any) -> None:
        self._config, self.logits_NX = lm.config, list[Tensor]()

    def loss(self) -> Tensor | float:
        """The weighted loss that is least when every network has as many tokens; 0 where nothing was routed."""
        if not self.logits_NX:
            return 0.0
        from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

        layers: Any = tuple(self.logits_NX)
        loss = load_balancing_loss_func(layers, self._config.num_local_experts, self._config.num_experts_per_tok)
        return loss * float(self._config.router_aux_loss_coef)


@contextmanager
def router_losses(lm: Any) -> Iterator[RouterLosses]:
    """Collects the logits of the routers within; a model without routers has none."""
    losses = RouterLosses(lm)
    hooks = [
        module.register_forward_hook(lambda _module, _inputs, out: losses.logits_NX.append(out[0]))
        for module in routers(lm)
    ]
    try:
        yield losses
    finally:
        for hook in hooks:
            hook.remove()


def routers(lm: nn.Module) -> list[nn.Module]:
    """The routers of a Mixtral model, layer by layer; of any other none."""
    if getattr(getattr(lm, "config", None), "model_type", "") != "mixtral":
        return []
    from transformers.models.mixtral.modeling_mixtral import MixtralTopKRouter

    return [module for module in lm.modules() if isinstance(module, MixtralTopKRouter)]
