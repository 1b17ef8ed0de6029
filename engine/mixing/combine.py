"""The only sum of the project: experts are mixed in log space over probabilities, never over logits."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def mix(log_weights_E: Tensor, logprobs_E: Tensor) -> Tensor:
    """log Σ_e w_e · p_e over the first axis; trailing axes of either are broadcast.

    Weights [E] against log-probabilities [E, V] give [V]; [E, N, T] against [E, N, T] give [N, T]. An expert of weight
    0 takes no part even where its log-probability is not a number.
    """
    extra = logprobs_E.dim() - log_weights_E.dim()
    weights = log_weights_E.to(logprobs_E.device, logprobs_E.dtype).view(*log_weights_E.shape, *[1] * extra)
    logs = weights + logprobs_E
    top = logs.amax(0)
    if top.isnan().any():
        logs = torch.where(weights == -torch.inf, -torch.inf, logs)
        top = logs.amax(0)
    return _log_sum(logs, top)


def _log_sum(logs: Tensor, top: Tensor) -> Tensor:
    """log Σ exp over the first axis, whose largest are `top`; -inf where all are.

    What is too small to change the sum is raised to what just does not underflow: processors take fifty times as long
    for an exponential that does, and a posterior that is sure of one expert has little else.
    """
    numbers = torch.finfo(logs.dtype)
    below = (logs - top.clamp(min=numbers.min)).clamp_(min=math.log(numbers.tiny) + 1)
    return below.exp_().sum(0).log_() + top
