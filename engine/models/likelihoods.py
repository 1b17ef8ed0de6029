"""What a decoder's last hidden states say of the tokens that come, without all logits at once.

Shapes: B rows, T positions, D width of the embeddings, N = B·T.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_LOGITS_AT_ONCE = 1 << 20  # 4 MB in float32


@torch.no_grad()
def log_likelihoods(lm: Any, hidden_BTD: Tensor, targets_BT: Tensor) -> Tensor:
    """Natural log-likelihood [B, T] of each target, float32, without gradients; never all logits at once.

    They are made for some positions at a time, few enough to stay in a processor's cache: quicker, and a large
    vocabulary takes no more memory than a small one.
    """
    head = lm.get_output_embeddings()
    at_once = max(1, _LOGITS_AT_ONCE // int(lm.config.vocab_size))
    pieces = zip(hidden_BTD.flatten(0, 1).split(at_once), targets_BT.flatten().split(at_once), strict=True)
    return torch.cat([_of_targets(head(some), wanted) for some, wanted in pieces]).view(targets_BT.shape)


def _of_targets(logits_NV: Tensor, targets_N: Tensor) -> Tensor:
    """float32 [N]; spends the logits: a second array of their size would take as long as the exponentials."""
    logits_NV = logits_NV.float()
    chosen_N = logits_NV.gather(-1, targets_N[:, None])[:, 0]
    greatest_N = logits_NV.amax(-1)
    return chosen_N - greatest_N - logits_NV.sub_(greatest_N[:, None]).exp_().sum(-1).log()
