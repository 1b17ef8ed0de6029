"""Token log-likelihoods of every expert on held-out text: computed once, kept, mixed any number of times (law L19).

A score folder holds `logprobs.npy`, float32 [tokens], and `scores.json` with the block size. The blocks are
independent: block i predicts tokens iT+1 … (i+1)T from what precedes them in the block; the last one may be shorter.
Shapes: E experts, N blocks, T positions.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.errors import ScoresError
from engine.events import Progress
from engine.mixing.base import Gate
from engine.mixing.combine import mix
from engine.models.demix import DemixModel, Rows

Floats = NDArray[np.float32]


def score_tokens(
    model: DemixModel,
    key: str,
    tokens: NDArray[np.unsignedinteger],
    folder: Path,
    *,
    block_size: int,
    batch_size: int = 8,
) -> Iterator[Progress]:
    """Writes one expert's log-likelihood of every token but the first into a folder.

    Raises ScoresError when there are fewer than two tokens.
    """
    total = len(tokens) - 1
    if total < 1:
        raise ScoresError(
            "Text to score must hold at least 2 tokens, but holds fewer.", "Import more text for this domain."
        )
    scores = np.lib.format.open_memmap(folder / "logprobs.npy", mode="w+", dtype=np.float32, shape=(total,))
    step = block_size * batch_size
    for start in range(0, total, step):
        stop = min(start + step, total)
        scores[start:stop] = score_span(model, key, tokens[start : stop + 1], block_size, batch_size)
        yield Progress(stop, total, "tokens")
    scores.flush()
    (folder / "scores.json").write_text(json.dumps({"block_size": block_size, "num_tokens": total}), encoding="utf-8")


@torch.inference_mode()
def score_span(
    model: DemixModel, key: str, span: NDArray[np.unsignedinteger], block_size: int, batch_size: int = 8
) -> Floats:
    """One expert's log-likelihood of every token of a span but the first, in independent blocks."""
    ids = torch.from_numpy(span.astype(np.int64)).to(model.device)
    total = len(ids) - 1
    whole = total // block_size * block_size
    parts: list[Tensor] = []
    blocks = zip(
        ids[:whole].view(-1, block_size).split(batch_size),
        ids[1 : whole + 1].view(-1, block_size).split(batch_size),
        strict=True,
    )
    parts.extend(_log_likelihoods(model, key, *block) for block in blocks if whole)
    if whole < total:
        parts.append(_log_likelihoods(model, key, ids[None, whole:total], ids[None, whole + 1 :]))
    return torch.cat([part.flatten() for part in parts]).cpu().numpy()


def _log_likelihoods(model: DemixModel, key: str, inputs_NT: Tensor, targets_NT: Tensor) -> Tensor:
    return model.log_likelihoods(inputs_NT, targets_NT, Rows.all_to(key, len(inputs_NT)))


def open_scores(folders: Sequence[Path]) -> tuple[Tensor, int]:
    """Scores [E, tokens] of several experts on the same text, and their block size; memory-mapped until used."""
    cards = [json.loads((folder / "scores.json").read_text(encoding="utf-8")) for folder in folders]
    if not cards or any(card != cards[0] for card in cards):
        raise ScoresError(
            "Scores must be of the same tokens and block size to be mixed, but differ.",
            "Evaluate all experts again together.",
        )
    rows = [np.load(folder / "logprobs.npy", mmap_mode="r", allow_pickle=False) for folder in folders]
    return torch.from_numpy(np.stack(rows)), int(cards[0]["block_size"])


def as_blocks(scores_EX: Tensor, block_size: int) -> Tensor:
    """Scores [E, tokens] as blocks [E, N, T]; the end of the last block is filled with 0."""
    num_experts, total = scores_EX.shape
    missing = -total % block_size
    padded = torch.nn.functional.pad(scores_EX, (0, missing))
    return padded.view(num_experts, -1, block_size)


def whole_blocks(scores_EX: Tensor, block_size: int) -> Tensor:
    """Scores [E, tokens] as blocks [E, N, T] without a last block that is cut short."""
    num_blocks = scores_EX.shape[1] // block_size
    return scores_EX[:, : num_blocks * block_size].view(len(scores_EX), num_blocks, block_size)


def mix_scores(gate: Gate, scores_EX: Tensor, block_size: int) -> Tensor:
    """The mixture's log-likelihood [tokens] of every token, each block from its own beginning."""
    blocks_ENT = as_blocks(scores_EX, block_size)
    return mix(gate.block(blocks_ENT), blocks_ENT.double()).flatten()[: scores_EX.shape[1]]


def perplexity(logprobs: Tensor) -> float:
    """exp of the mean negative log-likelihood per token."""
    return math.exp(-float(logprobs.mean(dtype=torch.float64)))


def mixed_perplexity(gate: Gate, scores_EX: Tensor, block_size: int) -> float:
    """The perplexity of a mixture: that of `mix_scores`, without the tokens in between where the gate knows how."""
    return math.exp(-gate.total(as_blocks(scores_EX, block_size)) / scores_EX.shape[1])
