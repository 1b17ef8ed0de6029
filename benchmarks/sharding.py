"""Memory of each process of a training whose processes divide the model (`--shard`), against one that they share.

Two updates of a dense model and of a DEMix model of two experts (12 layers of width 768, a vocabulary of 16,384), one
block of 128 random tokens for each process: so that parameters, gradients and Adam's moments are what takes memory.
Memory is the kernel's peak of resident memory of the process that has most, above that of a model of width 16; it
includes building the whole model, from which each process then keeps its part. Time is processor time of all processes.
Run: python benchmarks/sharding.py
"""

from __future__ import annotations

from engine.device import prepare_process

prepare_process()

import tempfile  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from dataclasses import dataclass  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402
import psutil  # noqa: E402

from engine.config import ModelConfig, TrainingConfig  # noqa: E402
from engine.events import Step  # noqa: E402
from engine.methods.joint_training import Recipe, train_distributed  # noqa: E402
from engine.models.families import fresh_model  # noqa: E402
from engine.training.data import PackedDomain  # noqa: E402
from harness.benchmark import Figure, Options, report, resident_bytes  # noqa: E402

SIZES = {"layers": (12, 2), "width": (768, 64), "methods": (["dense", "demix"], ["dense"])}
PROCESSES = {"dense": 2, "demix": 4}
VOCAB, BLOCK, UPDATES = 16_384, 128, 2
LEAST = ModelConfig(num_layers=1, width=16, num_heads=2, ffn_width=32, max_positions=256)


@dataclass(frozen=True)
class Peak:
    """The peak of the process that has most, in bytes, and processor seconds of all."""

    memory: int
    seconds: float


def packed(folder: Path, experts: Sequence[str]) -> list[PackedDomain]:
    """Two domains of random tokens."""
    domains = []
    for number, expert in enumerate(experts):
        place = folder / f"text{number}"
        place.mkdir()
        for split in ("train", "dev"):
            ids = np.random.default_rng(number).integers(0, VOCAB, 20 * BLOCK)
            np.save(place / f"{split}.npy", ids.astype("<u2"))
            np.save(place / f"{split}.starts.npy", np.zeros(1, dtype="<i8"))
        domains.append(PackedDomain(f"text{number}", expert, place))
    return domains


def measure(seed: Path, method: str, num_processes: int, shard: bool) -> Peak:
    """Of a training of two domains on so many processes."""
    experts = ["one", "one"] if method == "dense" else ["a", "b"]
    config = TrainingConfig(
        num_steps=UPDATES + 1,
        block_size=BLOCK,
        sequences_per_domain=num_processes // 2,
        evaluate_every=10**6,
        checkpoint_every=10**6,
        shard=shard,
        learning_rate=1e-3,
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        domains = packed(folder, experts)
        events = train_distributed(
            num_processes,
            seed,
            domains,
            config,
            folder / "run",
            recipe=Recipe(method),
            device="cpu",
            log=folder / "log",
        )
        for event in events:
            if isinstance(event, Step) and event.step == UPDATES:
                peaks = [_peak(process) for process in psutil.Process().children(recursive=True) if _is_rank(process)]
                break
        events.close()  # type: ignore[attr-defined]
    assert len(peaks) == num_processes
    return Peak(max(peak.memory for peak in peaks), sum(peak.seconds for peak in peaks))


def _is_rank(process: psutil.Process) -> bool:
    return "RANK" in process.environ()


def _peak(process: psutil.Process) -> Peak:
    times = process.cpu_times()
    return Peak(resident_bytes("VmHWM", process.pid), times.user + times.system)


def main() -> None:
    options = Options(__doc__, SIZES).parse_args()
    width, figures = options.width, []
    shape = ModelConfig(
        num_layers=options.layers, width=width, num_heads=width // 64, ffn_width=4 * width, max_positions=256
    )
    with tempfile.TemporaryDirectory() as name:
        least, large = Path(name) / "least", Path(name) / "large"
        fresh_model(LEAST, VOCAB).save_pretrained(least)
        model = fresh_model(shape, VOCAB)
        model.save_pretrained(large)
        print(f"{sum(parameter.numel() for parameter in model.parameters()) / 1e6:.0f}M parameters")
        for method in options.methods:
            number = PROCESSES[method]
            floor = measure(least, method, number, shard=True)
            copied, divided = (measure(large, method, number, shard) for shard in (False, True))
            memory = [(one.memory - floor.memory) / 1e6 for one in (copied, divided)]
            print(
                f"{method}, {number} processes: at most {memory[1]:,.0f} MB each against {memory[0]:,.0f} MB, "
                f"in {divided.seconds / copied.seconds:.2f} times the processor time",
                flush=True,
            )
            title = f"memory of each of {number} processes that divide the model over sharing it, {method}"
            figures.append(Figure(title, [memory[1] / memory[0]], at_most=1))
    report(options, figures)


if __name__ == "__main__":
    main()
