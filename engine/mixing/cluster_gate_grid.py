"""The perplexity of cluster gates at every temperature and top-k, from stored scores and distances (C-BTM table 9).

The order of the experts by distance is the same at every temperature, so a token's experts are sorted once; the sums
over the nearest k are then cumulative sums, for all k at once. With evidence the order depends on the temperature, and
experts are sorted once for each.
Shapes: E experts, N blocks, T positions, X tokens, G temperatures, J numbers of experts kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.config import PAPER_DISTANCE_POWER
from engine.mixing.base import FLOOR, Gate

if TYPE_CHECKING:
    from engine.clusters.distances import Distances

_TOKENS_PER_CHUNK = 1 << 13  # few enough for the cumulative sums of 32 experts to stay in a processor's cache
_LEAST = 1e-300  # relative to the likelihood of the token's best expert: keeps the logarithm finite


def cluster_gate_grid(
    scores_EX: Tensor,
    squared_EX: Tensor,
    temperatures: Sequence[float],
    top_ks: Sequence[int],
    *,
    distance_power: float = PAPER_DISTANCE_POWER,
    counted_X: Tensor | None = None,
) -> Tensor:
    """Perplexities [G, J], float64, of the mixture under equal priors, over the tokens that count (None: all).

    `squared_EX` are the squared distances before each token to the cluster of each expert. A top-k above E keeps all.
    """
    if counted_X is not None:  # the weights of a token do not depend on the scores of others
        scores_EX, squared_EX = scores_EX[:, counted_X], squared_EX[:, counted_X]
    kept_J = torch.tensor([min(k, len(scores_EX)) - 1 for k in top_ks])
    total_GJ = torch.zeros(len(temperatures), len(top_ks), dtype=torch.float64)
    for scores_Ex, squared_Ex in zip(
        scores_EX.split(_TOKENS_PER_CHUNK, 1), squared_EX.split(_TOKENS_PER_CHUNK, 1), strict=True
    ):
        far_Ex, order_Ex = (squared_Ex.double() ** (distance_power / 2)).sort(dim=0, stable=True)  # of equals the first
        further_Ex = far_Ex - far_Ex[0]
        floored_Ex = scores_Ex.double().clamp(min=FLOOR)
        best_x = floored_Ex.amax(0)
        likelihoods_Ex = (floored_Ex - best_x).exp().gather(0, order_Ex)
        for row, temperature in enumerate(temperatures):
            weights_Ex = (further_Ex / -temperature).exp()
            mixed_Jx = (weights_Ex * likelihoods_Ex).cumsum(0)[kept_J] / weights_Ex.cumsum(0)[kept_J]
            total_GJ[row] += (mixed_Jx.clamp(min=_LEAST).log() + best_x).sum(1)
    return (-total_GJ / scores_EX.shape[1]).exp()


def any_gate_grid(
    gate_at: Callable[[float], Gate],
    blocks_ENT: Tensor,
    distances: Distances,
    num_tokens: int,
    temperatures: Sequence[float],
    top_ks: Sequence[int],
    counted_X: Tensor | None = None,
) -> Tensor:
    """Perplexities [G, J], float64, of any gate without a top-k that `gate_at` makes at a temperature.

    They are over the tokens that count; None: all. `blocks_ENT` are the scores of `num_tokens` tokens, the last block
    padded. A top-k above E keeps all.
    """
    kept_J = [min(k, len(blocks_ENT)) - 1 for k in top_ks]
    total_GJ = torch.zeros(len(temperatures), len(top_ks), dtype=torch.float64)
    for row, temperature in enumerate(temperatures):
        log_weights_EX = gate_at(temperature).block(blocks_ENT, distances).flatten(1)[:, :num_tokens]
        scores_EX = blocks_ENT.flatten(1)[:, :num_tokens].double().clamp(min=FLOOR)
        sorted_EX, order_EX = log_weights_EX.sort(dim=0, descending=True, stable=True)
        likeliest_EX = (sorted_EX + scores_EX.gather(0, order_EX)).logcumsumexp(0)
        mixed_JX = (likeliest_EX - sorted_EX.logcumsumexp(0))[kept_J]
        total_GJ[row] = (mixed_JX if counted_X is None else mixed_JX[:, counted_X]).sum(1)
    return (-total_GJ / (num_tokens if counted_X is None else int(counted_X.sum()))).exp()
