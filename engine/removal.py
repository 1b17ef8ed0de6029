"""What is left of an expert in a mixture without it: nothing, to the last bit (DEMix §7, law L7).

Two models are compared by live forward passes: one holds the expert and leaves it out, the other never loaded it.
Shapes: E experts that are left, T positions, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.errors import ScoresError
from engine.events import Progress
from engine.mixing.base import Gate
from engine.mixing.combine import mix
from engine.models.demix import DemixModel, Rows

_CHUNK_ELEMENTS = 1 << 24  # log-probabilities (E × T × V) of one model held at once: 64 MiB


@dataclass(frozen=True)
class Identity:
    """Log-probabilities of two mixtures and their experts on the same text, compared bit for bit."""

    num_tokens: int
    num_numbers: int
    num_different: int
    largest_difference: float | None  # nats; None where it is no finite number

    @property
    def holds(self) -> bool:
        """Whether everything that was compared is the same."""
        return self.num_numbers > 0 and self.num_different == 0


def compare_bits(
    whole: DemixModel, never: DemixModel, left: Sequence[str], gate: Gate, texts: Sequence[NDArray[Any]],
    block_size: int, num_blocks: int = 4,
) -> Iterator[Progress | Identity]:  # fmt: skip
    """Progress, then one Identity: the whole distributions of the experts `left`, and of their mixture by `gate`.

    `texts` are flat arrays of tokens; of each the first `num_blocks` blocks are read, shorter ones where the
    vocabulary is large. Raises ScoresError when no text has two tokens.
    """
    size = min(block_size, max(1, _CHUNK_ELEMENTS // (len(left) * whole.vocab_size)))
    blocks = [text[at : at + size + 1] for text in texts for at in range(0, len(text) - 1, size)[:num_blocks]]
    if not blocks:
        raise ScoresError("Text to compare on must hold at least 2 tokens, but holds fewer.", "Import more text.")
    num_numbers = num_different = 0
    largest = 0.0
    for number, block in enumerate(blocks):
        for one, other in zip(*(_distributions(model, left, gate, block) for model in (whole, never)), strict=True):
            num_numbers += one.numel()
            differ = one.view(torch.int32) != other.view(torch.int32)
            num_different += int(differ.sum())
            largest = max(largest, _largest(one[differ], other[differ]))
        yield Progress(number + 1, len(blocks), "blocks", "comparing with the mixture that never loaded it")
    yield Identity(
        sum(len(block) - 1 for block in blocks), num_numbers, num_different,
        largest if math.isfinite(largest) else None,
    )  # fmt: skip


@torch.inference_mode()
def _distributions(model: DemixModel, keys: Sequence[str], gate: Gate, block: NDArray[Any]) -> tuple[Tensor, Tensor]:
    """Log-probabilities of each expert [E, T, V] and of the mixture [T, V], each position from those before it."""
    ids = torch.from_numpy(block.astype(np.int64)).to(model.device)
    logits_ETV = model(ids[:-1].expand(len(keys), -1), Rows.one_each(keys))
    logprobs_ETV = logits_ETV.float().log_softmax(-1)
    observed_ET = logprobs_ETV.gather(-1, ids[1:].expand(len(keys), -1)[..., None])[..., 0]
    log_weights_ET = gate.block(observed_ET[:, None].cpu())[:, 0]
    return logprobs_ETV, mix(log_weights_ET, logprobs_ETV)


def _largest(one: Tensor, other: Tensor) -> float:
    """The largest difference (nats), infinite where one is no number; 0 of nothing."""
    if not len(one):
        return 0.0
    return float((one - other).abs().nan_to_num(nan=math.inf).max())
