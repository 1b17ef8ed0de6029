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

import argparse  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402

from engine.config import ModelConfig, TrainingConfig  # noqa: E402
from engine.methods.registry import get_method  # noqa: E402
from engine.models.families import fresh_model, load_model  # noqa: E402
from engine.text.blocks import Tokens  # noqa: E402
from engine.training.data import DomainText  # noqa: E402
from engine.training.loop import train  # noqa: E402

VOCAB, BLOCK, ROWS, UPDATES = 65_536, 512, 8, 2
SHAPE = ModelConfig(num_layers=12, width=256, num_heads=4, ffn_width=1024, max_positions=1024)


def peer(folder: Path) -> Callable[[], None]:
    """Updates with transformers' loss of all logits at once."""
    model = load_model(folder).train()
    optimizer = torch.optim.AdamW(model.parameters())
    ids = torch.randint(0, VOCAB, (ROWS, BLOCK))

    def run() -> None:
        for _ in range(UPDATES):
            model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    return run


def ours(folder: Path, activation_checkpointing: bool) -> Callable[[], None]:
    """Updates of our training loop."""
    method = get_method("dense")
    key = str(method.only_expert)
    model = method.build(folder, [key])
    ids = np.random.default_rng(0).integers(0, VOCAB, 20 * BLOCK).astype(np.uint32)
    tokens = Tokens(ids, np.zeros(1, dtype=np.int64))
    config = TrainingConfig(
        num_steps=UPDATES,
        block_size=BLOCK,
        sequences_per_domain=ROWS,
        evaluate_every=10**6,
        checkpoint_every=10**6,
        activation_checkpointing=activation_checkpointing,
    )

    def run() -> None:
        with tempfile.TemporaryDirectory() as name:
            for event in train(model, [DomainText("text", key, tokens, tokens)], config, Path(name)):
                if getattr(event, "step", 0) == UPDATES:  # before the last checkpoint is written
                    return

    return run


def resident(which: str) -> int:
    """Bytes of resident memory: VmRSS now, VmHWM at its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(which)).split()[1])


VARIANTS: dict[str, Callable[[Path], Callable[[], None]]] = {
    "transformers": peer,
    "ours": lambda folder: ours(folder, False),
    "ours with activation checkpointing": lambda folder: ours(folder, True),
}


def measure(variant: str, folder: Path) -> None:
    """Prints bytes at the peak above those before, and seconds of processor time."""
    run = VARIANTS[variant](folder)
    before, start = resident("VmRSS"), time.process_time()
    run()
    print(resident("VmHWM") - before, time.process_time() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", choices=list(VARIANTS))
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure, arguments.folder)
        return
    with tempfile.TemporaryDirectory() as name:
        fresh_model(SHAPE, VOCAB).save_pretrained(name)
        figures = {}
        for variant in VARIANTS:
            command = [sys.executable, __file__, "--measure", variant, "--folder", name]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
            figures[variant] = float(output[-2]), float(output[-1])
            memory, seconds = (
                own / other for own, other in zip(figures[variant], figures["transformers"], strict=True)
            )
            print(
                f"{variant}: {figures[variant][0] / 1e6:,.0f} MB, {memory:.2f} times the peer's; "
                f"{figures[variant][1]:.1f} s of processor time, {seconds:.2f} times the peer's",
                flush=True,
            )
    sys.exit(figures["ours"][0] >= figures["transformers"][0])


if __name__ == "__main__":
    main()
