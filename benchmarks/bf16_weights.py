"""Claim: weights held in bfloat16 (`--precision bf16_weights`) take 12 bytes a parameter, and lose less than 5 %.

A dense model of 4 layers of width 128 learns the bytes of this project's documentation, from the same start, on the
same batches: with `fp32`, `bf16` (weights in float32, passes in bf16), `bf16_weights`, and the peer: the same with
updates rounded to the nearest number instead of at random. Every tenth page is held out. Bytes are of weights,
gradients and AdamW's moments. Run: python benchmarks/bf16_weights.py
"""

from __future__ import annotations

from engine.device import prepare_process

prepare_process()

import tempfile  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402
from statistics import fmean  # noqa: E402
from unittest.mock import patch  # noqa: E402

import numpy as np  # noqa: E402
from torch import Tensor  # noqa: E402

from engine.config import ModelConfig, Precision, TrainingConfig  # noqa: E402
from engine.events import Evaluated  # noqa: E402
from engine.methods.registry import get_method  # noqa: E402
from engine.models.families import fresh_model  # noqa: E402
from engine.text.blocks import Tokens  # noqa: E402
from engine.training.data import DomainText  # noqa: E402
from engine.training.loop import train  # noqa: E402
from engine.training.memory import TrainingTensors, observed_by  # noqa: E402
from engine.training.optimizer import stochastic_round  # noqa: E402
from harness.benchmark import Figure, Options, report  # noqa: E402

SIZES = {"steps": (200, 4), "seeds": ([0, 1, 2], [0])}
SHAPE = ModelConfig(num_layers=4, width=128, num_heads=4, ffn_width=512, max_positions=256)
PAGES = sorted((Path(__file__).parents[1] / "docs").rglob("*.md"))
OPTIONS: dict[str, Precision] = {
    "fp32": "fp32",
    "bf16": "bf16",
    "bf16_weights": "bf16_weights",
    "rounded to the nearest": "bf16_weights",
}


def text() -> DomainText:
    """The documentation as bytes."""
    learnt = [page for number, page in enumerate(PAGES) if number % 10 != 9]
    return DomainText("docs", str(get_method("dense").only_expert), _tokens(learnt), _tokens(PAGES[9::10]))


def _tokens(pages: list[Path]) -> Tokens:
    ids = np.frombuffer(b"".join(page.read_bytes() for page in pages), np.uint8).astype(np.uint16)
    return Tokens(ids, np.zeros(1, np.int64))


def measure(seed: Path, name: str, num_steps: int, number: int, folder: Path) -> tuple[float, float, float]:
    """Held-out loss at the end, bytes a parameter, and seconds."""
    method, held = get_method("dense"), list[TrainingTensors]()
    model = method.build(seed, [str(method.only_expert)])
    config = TrainingConfig(
        num_steps=num_steps,
        block_size=64,
        sequences_per_domain=8,
        learning_rate=2e-3,
        clip=1.0,
        evaluate_every=num_steps,
        evaluation_blocks=64,
        checkpoint_every=num_steps,
        precision=OPTIONS[name],
        seed=number,
    )
    loss, size, began = 0.0, 0.0, time.process_time()
    how = _to_the_nearest if "nearest" in name else stochastic_round
    rounding = patch("engine.training.optimizer.stochastic_round", how)
    with observed_by(held.append), rounding:
        for event in train(model, [text()], config, folder):
            if isinstance(event, Evaluated) and event.step == num_steps:
                loss = event.loss_by_domain["docs"]
                size = (2 * held[0].trained_bytes() + held[0].optimizer_bytes()) / held[0].num_trained()
    return loss, size, time.process_time() - began


def _to_the_nearest(exact: Tensor) -> Tensor:
    return exact.bfloat16()


def main() -> None:
    options = Options(__doc__, SIZES).parse_args()
    losses: dict[str, list[float]] = {option: [] for option in OPTIONS}
    sizes = {}
    with tempfile.TemporaryDirectory() as name:
        for number in options.seeds:
            folder = Path(name) / str(number)
            fresh_model(SHAPE, 256, seed=number).save_pretrained(folder / "seed")
            for option in OPTIONS:
                loss, sizes[option], seconds = measure(folder / "seed", option, options.steps, number, folder / option)
                losses[option].append(loss)
                print(f"seed {number}, {option:22}: held-out loss {loss:.4f}, {seconds:.0f} s", flush=True)
    means = {option: fmean(some) for option, some in losses.items()}
    figures = [
        Figure("held-out loss, bf16_weights over bf16", [means["bf16_weights"] / means["bf16"]], at_most=1.05),
        Figure("bytes a parameter, bf16_weights over bf16", [sizes["bf16_weights"] / sizes["bf16"]], at_most=0.76),
    ]
    report(options, figures, mean_losses=means, bytes_a_parameter=sizes)


if __name__ == "__main__":
    main()
