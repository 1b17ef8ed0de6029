"""One learned vector per expert before the text: the paper's baseline +Domain-Token (DEMix §4.2).

Shapes: B rows, T positions, D width of the embeddings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from engine.errors import ModelError
from engine.models.multi_expert import Placement
from engine.models.rows import current_rows

_PLACE = "domain_token"


class DomainTokens(nn.Module):
    """One learned vector per expert, put before the embeddings of each sequence: a token that no text holds."""

    def __init__(self, embedding: nn.Embedding, keys: Iterable[str]) -> None:
        """All start alike, as experts do: at one draw from the distribution of the vocabulary's embeddings."""
        super().__init__()
        std_D, mean_D = torch.std_mean(embedding.weight.detach(), 0)
        draw_D = torch.randn(mean_D.shape, generator=torch.Generator().manual_seed(0)).to(mean_D)
        start_1D = (mean_D + std_D * draw_D)[None]
        self.experts = nn.ModuleDict(
            {key: nn.Embedding.from_pretrained(start_1D.clone(), freeze=False) for key in keys}
        )

    def forward(self, embeddings_BTD: Tensor) -> Tensor:
        """[B, 1 + T, D]: every row with its expert's vector before it."""
        rows = current_rows()
        vectors_1D: list[Any] = [self.experts[key].weight for key in rows.keys]
        first = [vector_1D.expand(count, 1, -1) for vector_1D, count in zip(vectors_1D, rows.num_rows, strict=True)]
        return torch.cat([torch.cat(first), embeddings_BTD], 1)


class BeforeText(Placement):
    """Experts as vectors before the text, all alike at first."""

    def insert(self, lm: Any, keys: Sequence[str]) -> dict[str, Any]:
        return {_PLACE: DomainTokens(lm.get_input_embeddings(), keys)}

    def inputs(self, lm: Any, layers: Mapping[str, Any], input_ids_BT: Tensor) -> dict[str, Tensor]:
        return {"inputs_embeds": layers[_PLACE](lm.get_input_embeddings()(input_ids_BT))}

    def merge(self, lm: Any, layers: Mapping[str, Any], key: str) -> None:
        raise ModelError(
            "An expert that is a vector before the text cannot be merged into a full model.",
            "Choose experts of another method than domain-token.",
        )
