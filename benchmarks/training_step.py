"""Claim: a DEMix training step (8 domains in one batch) takes at most 1.10x a dense step on the same tokens (CPU).

Both train the same shape with the same optimizer on the same random tokens; their steps alternate, so drift hits both.
Run: python benchmarks/training_step.py
"""

from __future__ import annotations

from engine.device import prepare_process
from engine.methods.multi_expert_files import new_placement

prepare_process()

from collections.abc import Callable, Mapping, Sequence  # noqa: E402

import torch  # noqa: E402
from torch import nn  # noqa: E402

from engine.config import ModelConfig, TrainingConfig  # noqa: E402
from engine.models.expert_model import trainable  # noqa: E402
from engine.models.families import fresh_model  # noqa: E402
from engine.models.multi_expert import MultiExpertModel  # noqa: E402
from engine.models.rows import Rows  # noqa: E402
from engine.training.optimizer import GradientGroup, clip_and_step, gradient_groups, make_optimizer  # noqa: E402
from harness.benchmark import Figure, Options, report, seconds_of  # noqa: E402

SIZES = {"steps": (12, 1), "block": (256, 16), "sequences": (2, 1, "sequences per domain")}
VOCAB = 4096


def step_function(
    forward: Callable[[torch.Tensor], torch.Tensor],
    parameters: Mapping[str, nn.Parameter],
    groups: Sequence[GradientGroup],
    ids: torch.Tensor,
) -> Callable[[], None]:
    """One whole update: forward, loss, backward, clip, Adam."""
    config = TrainingConfig(learning_rate=1e-3)
    optimizer = make_optimizer(parameters, config)

    def step() -> None:
        logits = forward(ids[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        clip_and_step(optimizer, groups, 10, config)

    return step


def main() -> None:
    arguments = Options(__doc__, SIZES).parse_args()
    keys = [f"domain{i}" for i in range(8)]
    shape = ModelConfig(num_layers=4, width=128, num_heads=4, ffn_width=512, max_positions=512)
    ids = torch.randint(0, VOCAB, (8 * arguments.sequences, arguments.block + 1))
    dense_lm = fresh_model(shape, VOCAB).train()
    demix = MultiExpertModel(fresh_model(shape, VOCAB), keys, new_placement()).train()
    rows = Rows(tuple(keys), (arguments.sequences,) * 8)
    weights = dict(dense_lm.named_parameters())
    plain = [GradientGroup(list(weights.values()))]
    dense = step_function(lambda x: dense_lm(input_ids=x, use_cache=False).logits, weights, plain, ids)
    expert = step_function(lambda x: demix(x, rows), trainable(demix, None), gradient_groups(demix, rows), ids)
    seconds: dict[str, list[float]] = {"dense": [], "demix": []}
    for number in range(arguments.steps + 2):
        for name, step in (("dense", dense), ("demix", expert)):
            taken = seconds_of(step)
            if number >= 2:
                seconds[name].append(taken)
    ratios = [b / a for a, b in zip(seconds["dense"], seconds["demix"], strict=True)]
    figures = [Figure("a DEMix step over a dense one", ratios, at_most=1.1)]
    report(arguments, figures, tokens_per_step=ids[:, 1:].numel(), seconds=seconds)


if __name__ == "__main__":
    main()
