"""The model: the last hidden states of a frozen decoder, and what the active heads change of them.

Shapes: B rows, T positions, D width, E active heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from engine.methods.parts.parts_model import PartsModel
from engine.models.likelihoods import decoder_of
from toy_heads.descriptor import HeadConfig


class Head(nn.Module):
    """A small network and its row of the gate. At the start it changes nothing."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(width, size, bias=False), nn.Linear(size, width, bias=False)
        self.slope = nn.Parameter(torch.zeros(width))
        nn.init.zeros_(self.up.weight)

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.up(torch.tanh(self.down(x_BTD)))  # type: ignore[no-any-return]


class HeadsModel(PartsModel):
    """A gate weighs the backbone, which changes nothing, and each active head at each token."""

    method_name = "heads"
    gate_names = ("slope",)

    def new_modules(self, config: HeadConfig, *, is_empty: bool) -> dict[str, nn.Module]:
        return {"head": Head(int(self.lm.config.hidden_size), config.size).to(self.device)}

    def read(
        self,
        input_ids_BT: Tensor,
        keys: Sequence[str],
        cache: Any = None,
        mask_BS: Tensor | None = None,
        position_ids_BT: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        text = self.decoder_inputs(input_ids_BT, mask_BS, position_ids_BT)
        out = decoder_of(self.lm)(**text, past_key_values=cache, use_cache=cache is not None)
        x_BTD = out.last_hidden_state
        heads: list[Any] = [self.modules_of(key)["head"] for key in keys]
        logits = [x_BTD.new_zeros(x_BTD.shape[:2]), *(x_BTD @ head.slope for head in heads)]
        weights_BTG = torch.stack(logits, -1).softmax(-1)
        changes = [weights_BTG[..., number, None] * head(x_BTD) for number, head in enumerate(heads, 1)]
        return sum(changes, x_BTD), weights_BTG.detach().permute(2, 0, 1)[None]
