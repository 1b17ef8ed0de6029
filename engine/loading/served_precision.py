"""The precision that weights are served in, where it is not the stored one."""

from __future__ import annotations

import torch
from torch import nn

from engine.config import ServePrecision


@torch.no_grad()
def hold_in(modules: list[nn.Module], precision: ServePrecision) -> None:
    """Holds float32 parameters in this precision; `stored` changes nothing.

    As with a seed that is stored in it, modules name parameters that stay (`in_float32`): adapters, gates of MoDE.
    Buffers stay, too: positions of rotary embeddings need the digits.
    """
    if precision == "stored":
        return
    for module in (one for model in modules for one in model.modules()):
        kept = getattr(module, "in_float32", ())
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.dtype == torch.float32 and name not in kept:
                parameter.data = parameter.data.to(torch.bfloat16)
