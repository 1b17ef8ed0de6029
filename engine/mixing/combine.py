"""The only sum of the project: experts are mixed in log space over probabilities, never over logits."""

from __future__ import annotations

import torch
from torch import Tensor


def mix(log_weights_E: Tensor, logprobs_E: Tensor) -> Tensor:
    """log Σ_e w_e · p_e over the first axis; trailing axes of either are broadcast.

    Weights [E] against log-probabilities [E, V] give [V]; [E, N, T] against [E, N, T] give [N, T]. An expert of weight
    0 takes no part even where its log-probability is not a number.
    """
    extra = logprobs_E.dim() - log_weights_E.dim()
    weights = log_weights_E.to(logprobs_E.device, logprobs_E.dtype).view(*log_weights_E.shape, *[1] * extra)
    asleep = weights == -torch.inf
    return torch.where(asleep, -torch.inf, weights + logprobs_E).logsumexp(0)
