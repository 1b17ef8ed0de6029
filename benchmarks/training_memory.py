"""Claim: an update of a model with a large vocabulary needs less memory than transformers' own loss on the same batch.

Three processes run two updates each of a dense model of 12 layers, width 256 and a vocabulary of 65,536, on 8 blocks
of 512 random tokens (268 million logits, 1.07 GB in float32), with AdamW: the peer with the loss that transformers
computes from `labels`; our training loop; our loop with activations computed again in the backward pass. Memory is the
kernel's peak of resident memory above what the process had before the first update.
Run: python benchmarks/training_memory.py
"""

from __future__ import annotations

from engine.device import prepare_process

prepare_process()

import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from functools import partial  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402

from engine.config import ModelConfig, TrainingConfig  # noqa: E402
from engine.methods.registry import get_method  # noqa: E402
from engine.models.families import fresh_model, load_model  # noqa: E402
from engine.text.blocks import Tokens  # noqa: E402
from engine.training.data import DomainText  # noqa: E402
from engine.training.loop import train  # noqa: E402
from harness.benchmark import Figure, Options, in_own_process, report, resident_bytes  # noqa: E402

SIZES = {"vocabulary": (65_536, 512), "block": (512, 16), "rows": (8, 2), "layers": (12, 1), "width": (256, 32)}
UPDATES = 2


def peer(folder: Path, sizes: Any) -> Callable[[], None]:
    """Updates with transformers' loss of all logits at once."""
    model = load_model(folder).train()
    optimizer = torch.optim.AdamW(model.parameters())
    ids = torch.randint(0, sizes.vocabulary, (sizes.rows, sizes.block))

    def run() -> None:
        for _ in range(UPDATES):
            model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    return run


def ours(folder: Path, sizes: Any, activation_checkpointing: bool = False) -> Callable[[], None]:
    """Updates of our training loop."""
    method = get_method("dense")
    key = str(method.only_expert)
    model = method.build(folder, [key])
    ids = np.random.default_rng(0).integers(0, sizes.vocabulary, 20 * sizes.block).astype(np.uint32)
    tokens = Tokens(ids, np.zeros(1, dtype=np.int64))
    config = TrainingConfig(
        num_steps=UPDATES,
        block_size=sizes.block,
        sequences_per_domain=sizes.rows,
        evaluate_every=10**6,
        checkpoint_every=10**6,
        activation_checkpointing=activation_checkpointing,
        learning_rate=1e-3,
    )

    def run() -> None:
        with tempfile.TemporaryDirectory() as name:
            for event in train(model, [DomainText("text", key, tokens, tokens)], config, Path(name)):
                if getattr(event, "step", 0) == UPDATES:  # before the last checkpoint is written
                    return

    return run


VARIANTS: dict[str, Callable[[Path, Any], Callable[[], None]]] = {
    "transformers": peer,
    "ours": ours,
    "ours with activation checkpointing": partial(ours, activation_checkpointing=True),
}


def measure(variant: str, folder: Path, sizes: Any) -> tuple[float, float]:
    """Bytes at the peak above those before, and seconds of processor time."""
    run = VARIANTS[variant](folder, sizes)
    before, start = resident_bytes("VmRSS"), time.process_time()
    run()
    return resident_bytes() - before, time.process_time() - start


def main() -> None:
    options = Options(__doc__, SIZES).parse_args()
    width = options.width
    shape = ModelConfig(
        num_layers=options.layers, width=width, num_heads=4, ffn_width=4 * width, max_positions=2 * options.block
    )
    with tempfile.TemporaryDirectory() as name:
        fresh_model(shape, options.vocabulary).save_pretrained(name)
        measured = {variant: in_own_process(measure, variant, Path(name), options) for variant in VARIANTS}
    memory, seconds = (
        {variant: one[number] / measured["transformers"][number] for variant, one in measured.items()}
        for number in (0, 1)
    )
    figures = [
        Figure(f"memory of an update over transformers', {variant}", [memory[variant]], at_most=bound)
        for variant, bound in (("ours", 1), ("ours with activation checkpointing", None))
    ]
    report(options, figures, megabytes={name: one[0] / 1e6 for name, one in measured.items()}, time_ratios=seconds)


if __name__ == "__main__":
    main()
