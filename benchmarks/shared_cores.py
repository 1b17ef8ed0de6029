"""What OMP_WAIT_POLICY=passive brings when two training processes share the machine's cores.

Two processes train small models at the same time, once with the environment the workbench gives its processes, once
with the default of the OpenMP library (the peer); the conditions alternate. The ratio is peer time over ours.
Run: python benchmarks/shared_cores.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

from engine.device import process_environment
from harness.benchmark import Figure, Options, report

SIZES = {"steps": (20, 1), "pairs": (3, 1)}

WORKER = """
import torch
from engine.config import ModelConfig, TrainingConfig
from engine.models.families import fresh_model
from engine.training.optimizer import GradientGroup, clip_and_step, make_optimizer
lm = fresh_model(ModelConfig(num_layers=4, width=128, num_heads=4, ffn_width=512), 2048).train()
parameters, config = dict(lm.named_parameters()), TrainingConfig(learning_rate=1e-3)
optimizer = make_optimizer(parameters, config)
groups = [GradientGroup(list(parameters.values()))]
ids = torch.randint(0, 2048, (4, 129))
print("ready", flush=True)
input()
for _ in range(STEPS):
    logits = lm(input_ids=ids[:, :-1], use_cache=False).logits
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()
    clip_and_step(optimizer, groups, 10, config)
"""


def seconds_for_two(environment: dict[str, str], steps: int) -> float:
    """Wall time of the steps in two processes that start them together."""
    code = WORKER.replace("STEPS", str(steps))
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", code], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    began = time.perf_counter()
    for worker in workers:
        worker.communicate("\n")
    assert all(worker.returncode == 0 for worker in workers)
    return time.perf_counter() - began


def main() -> None:
    options = Options(__doc__, SIZES).parse_args()
    ours = {**os.environ, **process_environment()}
    peer = {name: value for name, value in ours.items() if name != "OMP_WAIT_POLICY"}
    pairs = [tuple(seconds_for_two(one, options.steps) for one in (peer, ours)) for _ in range(options.pairs)]
    figures = [
        Figure(
            "two processes on shared cores, OpenMP's default over passive",
            [default / passive for default, passive in pairs],
        ),
        Figure("passive", [passive for _, passive in pairs], "s"),
        Figure("OpenMP's default", [default for default, _ in pairs], "s"),
    ]
    report(options, figures)


if __name__ == "__main__":
    main()
