"""The optimizer of DEMix tables 9–12: Adam, decoupled weight decay, warm-up, polynomial decay, one clip over all."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import nn

from engine.config import TrainingConfig
from engine.errors import NonFiniteLoss


def make_optimizer(parameters: Mapping[str, nn.Parameter], config: TrainingConfig) -> torch.optim.AdamW:
    """AdamW over the given parameters; decay on all of them, as in the paper's code base."""
    return torch.optim.AdamW(
        list(parameters.values()), lr=config.learning_rate, betas=(config.beta1, config.beta2), eps=config.epsilon,
        weight_decay=config.weight_decay, fused=True,
    )  # fmt: skip


def learning_rate(step: int, config: TrainingConfig) -> float:
    """The rate of update `step`, counted from 0: linear warm-up, then polynomial decay towards zero."""
    warmup = math.ceil(config.warmup * config.num_steps)
    if step < warmup:
        return config.learning_rate * (step + 1) / warmup
    left = (config.num_steps - step) / max(1, config.num_steps - warmup)
    return config.learning_rate * float(left**config.decay_power)


def clip_and_step(
    optimizer: torch.optim.Optimizer,
    parameters: Mapping[str, nn.Parameter],
    step: int,
    config: TrainingConfig,
) -> None:
    """One update after one clip over all gradients; raises NonFiniteLoss before anything is changed."""
    with_gradient = [parameter for parameter in parameters.values() if parameter.grad is not None]
    norm = torch.nn.utils.clip_grad_norm_(with_gradient, config.clip or math.inf)
    if not math.isfinite(float(norm)):
        raise NonFiniteLoss(
            f"The gradients of step {step + 1} must be finite, but their norm is {float(norm)} instead.",
            "Lower the learning rate, or clip gradients.",
        )
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(step, config)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
