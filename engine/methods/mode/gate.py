"""The gate of a MoDE block (Eq. 2): softmax(Linear(x)) over the backbone and the experts, for every token.

A softmax knows its logits only up to a common number, so the backbone's logit is 0 here, and each expert brings its own
row, relative to the backbone: composing is putting rows together, and an expert that is off leaves the others'
proportions as they are.

An expert must be able to start with a weight of exactly 0, and still learn. A bias of minus infinity would never move
again, and one merely low is not the backbone. So what is learned is not a bias b but the odds themselves, up to a sign
that does not count: exp(b) = ODDS_SCALE · |odds|, the same gates as the paper's. At 0 the weight is exactly 0, but its
gradient is not; the first update leaves 0 on either side, and from then on the expert's layers have a gradient.

Shapes: B rows, T positions, E experts.
"""

from __future__ import annotations

import torch
from torch import Tensor

ODDS_SCALE = 64.0  # how much quicker an optimizer of unit steps, such as Adam, opens an expert than by odds only


def gate_weights(slopes_BTE: Tensor, odds_E: Tensor) -> Tensor:
    """Weights [B, T, 1 + E] of the backbone and each expert: not negative, and 1 together (law L5).

    `slopes_BTE` are the linear parts of the experts' logits.
    """
    open_E = torch.where(odds_E < 0, -odds_E, odds_E) * ODDS_SCALE  # unlike abs, with a gradient at 0
    with torch.no_grad():  # any number may be taken from all logits; the largest keeps exp in bounds
        top_BT1 = (slopes_BTE + open_E.log()).amax(-1, keepdim=True).clamp(min=0)
    experts_BTE = open_E * (slopes_BTE - top_BT1).clamp(max=80).exp()
    backbone_BT1 = (-top_BT1).exp()
    return torch.cat([backbone_BT1, experts_BTE], -1) / (backbone_BT1 + experts_BTE.sum(-1, keepdim=True))
