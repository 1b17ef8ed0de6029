"""Claim: scoring a corpus with 8 experts takes at most 1/1.3 of the time of a plain loop over 8 separate models.

The peer is what one would write without the workbench: 8 `transformers` models of the same weights, one after another,
blocks in batches of 8, log-softmax over the vocabulary and the target's entry taken. Both give the same log-likelihoods
(checked). Runs alternate.
Run: python benchmarks/scoring.py
"""

from __future__ import annotations

from engine.device import prepare_process

prepare_process()

import time  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402

from decoding import requested_models  # noqa: E402
from engine.inference.scores import score_text  # noqa: E402
from engine.models.multi_expert import MultiExpertModel  # noqa: E402
from engine.text.blocks import eval_sample  # noqa: E402
from harness.benchmark import Figure, report  # noqa: E402


@torch.inference_mode()
def by_loop(models: list[Any], tokens: np.ndarray, block_size: int) -> torch.Tensor:
    """Scores [E, tokens] by the loop over separate models."""
    ids = torch.from_numpy(tokens.astype(np.int64))
    inputs, targets = ids[:-1].view(-1, block_size).split(8), ids[1:].view(-1, block_size).split(8)
    rows = []
    for lm in models:
        parts = [
            lm(input_ids=some).logits.float().log_softmax(-1).gather(-1, wanted[..., None])[..., 0]
            for some, wanted in zip(inputs, targets, strict=True)
        ]
        rows.append(torch.cat(parts).flatten())
    return torch.stack(rows)


def by_workbench(model: MultiExpertModel, tokens: np.ndarray, block_size: int) -> torch.Tensor:
    """Scores [E, tokens] as the evaluation job makes them."""
    text = eval_sample(tokens, block_size)
    return torch.stack([torch.from_numpy(score_text(model, key, text)) for key in model.keys])


def main() -> None:
    sizes = {"pairs": (5, 1), "blocks": (32, 2), "block_size": (256, 16)}
    options, model, models = requested_models(__doc__, sizes)
    num_tokens = options.blocks * options.block_size + 1
    tokens = np.random.default_rng(0).integers(0, model.vocab_size, num_tokens, dtype=np.uint16)
    ratios, speeds = [], []
    for number in range(options.pairs + 1):
        began = time.perf_counter()
        expected = by_loop(models, tokens, options.block_size)
        middle = time.perf_counter()
        result = by_workbench(model, tokens, options.block_size)
        ended = time.perf_counter()
        assert torch.allclose(result, expected, atol=1e-4)
        if number:
            ratios.append((middle - began) / (ended - middle))
            speeds.append(result.numel() / (ended - middle))
    figures = [
        Figure("a plain loop's time over ours", ratios, at_least=1.3),
        Figure("8 experts scored", speeds, "tokens/s of an expert"),
    ]
    report(options, figures)


if __name__ == "__main__":
    main()
