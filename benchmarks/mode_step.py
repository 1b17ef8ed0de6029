"""Claims: a stage-1 step of MoDE takes at most 0.75x a full fine-tuning step of the same backbone and batch when the
expert is a third of it; cached decoding with one expert takes at most 1.6x the backbone's time per token.

The peer is the plain transformers model, with the same optimizer, in the same run; steps and decodings alternate, so
drift hits both. Memory is what each training keeps: weights, gradients, Adam's moments, and what its forward pass saves
for the backward one. Operations are those of `engine/models/flops.py`.
Run: python benchmarks/mode_step.py
"""

from __future__ import annotations

from engine.device import prepare_process

prepare_process()

import copy  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable, Mapping  # noqa: E402
from typing import Any  # noqa: E402

import torch  # noqa: E402
from torch import nn  # noqa: E402
from transformers import DynamicCache  # noqa: E402

from engine.config import ModelConfig  # noqa: E402
from engine.methods.mode.config import ModeConfig  # noqa: E402
from engine.methods.mode.model import ModeModel  # noqa: E402
from engine.methods.parts.parts_model import ActiveParts  # noqa: E402
from engine.models.expert_model import trainable  # noqa: E402
from engine.models.families import fresh_model  # noqa: E402
from engine.models.flops import Shape, training_flops  # noqa: E402
from engine.models.rows import Rows  # noqa: E402
from engine.training.optimizer import GradientGroup  # noqa: E402
from harness.benchmark import Figure, Options, report  # noqa: E402
from training_step import step_function  # noqa: E402

Forward = Callable[[torch.Tensor], torch.Tensor]
SIZES = {
    "rounds": (9, 1),
    "layers": (9, 3, "of the backbone; the expert has a third of them"),
    "blocks": (3, 1),
    "width": (256, 32),
    "vocabulary": (8192, 512),
    "sequences": (4, 2),
    "block": (256, 64),
    "tokens": (64, 4),
    "device": ("cpu", "cpu"),
}


def loss_of(forward: Forward, ids: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(forward(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


def megabytes(model: nn.Module, forward: Forward, parameters: Mapping[str, nn.Parameter], ids: torch.Tensor) -> float:
    """What a training keeps at the end of its forward pass."""
    saved: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        loss = loss_of(forward, ids)  # held, so that no storage is used twice
    weights = {parameter.untyped_storage().data_ptr(): parameter.nbytes for parameter in model.parameters()}
    activations = sum(size for place, size in saved.items() if place not in weights)
    del loss
    return (
        sum(weights.values()) + 3 * sum(parameter.nbytes for parameter in parameters.values()) + activations
    ) / 2**20


@torch.inference_mode()
def decode(forward: Callable[[torch.Tensor, Any], torch.Tensor], prompt: torch.Tensor, num_tokens: int) -> float:
    """Seconds per token of greedy decoding, the prompt left out."""
    cache = DynamicCache()
    ids = forward(prompt, cache)[:, -1:].argmax(-1)
    began = time.perf_counter()
    for _ in range(num_tokens):
        ids = forward(ids, cache)[:, -1:].argmax(-1)
    return (time.perf_counter() - began) / num_tokens


def main() -> None:
    requested = Options(__doc__, SIZES).parse_args()
    torch.manual_seed(0)
    width = requested.width
    config = ModeConfig(requested.blocks, requested.layers // (3 * requested.blocks), start="even")
    shape = ModelConfig(num_layers=requested.layers, width=width, num_heads=4, ffn_width=4 * width, max_positions=1024)
    plain = fresh_model(shape, requested.vocabulary).to(requested.device).train()
    mode = ModeModel(copy.deepcopy(plain), config.num_blocks)
    mode.add_expert("law", config)
    active = ActiveParts(mode, ["law"], "law").train()
    ids = torch.randint(0, requested.vocabulary, (requested.sequences, requested.block + 1), device=requested.device)
    rows = Rows.all_to("law", requested.sequences)
    forwards: dict[str, Forward] = {
        "full": lambda x: plain(input_ids=x, use_cache=False).logits,
        "stage one": lambda x: active(x, rows),
    }
    parameters = {"full": dict(plain.named_parameters()), "stage one": dict(trainable(active, active.keys))}
    steps = {
        name: step_function(forwards[name], some, [GradientGroup(list(some.values()))], ids)
        for name, some in parameters.items()
    }
    decoders: dict[str, Any] = {
        "full": lambda x, cache: plain(input_ids=x, past_key_values=cache, use_cache=True).logits,
        "stage one": lambda x, cache: active(x, Rows.all_to("law", 1), cache),
    }
    memory = {
        "full": megabytes(plain, forwards["full"], parameters["full"], ids),
        "stage one": megabytes(active, forwards["stage one"], parameters["stage one"], ids),
    }
    trained, decoded = measure(steps, decoders, ids[:1, :64], requested)
    sizes = Shape.of(plain.config.to_dict())
    flops = active.training_flops(requested.block, experts_only=True) / training_flops(sizes, requested.block)
    figures = [
        Figure("stage-1 step over a full step", ratios(trained), at_most=0.75),
        Figure("decoding over the backbone's", ratios(decoded), at_most=1.6),
        Figure("memory of a stage-1 training over a full one's", [memory["stage one"] / memory["full"]]),
    ]
    report(
        requested,
        figures,
        step_seconds=trained,
        decoding_seconds=decoded,
        flops_ratio=flops,
        megabytes=memory,
        expert_over_backbone=mode.num_added("law") / sum(p.numel() for p in plain.parameters()),
        tokens_per_step=ids[:, 1:].numel(),
    )


def measure(
    steps: Mapping[str, Callable[[], None]], decoders: Mapping[str, Any], prompt: torch.Tensor, requested: Any
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds of every step, and per token of every decoding; the first two rounds are left out."""
    trained: dict[str, list[float]] = {name: [] for name in steps}
    decoded: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(requested.rounds + 2):
        for name, step in steps.items():
            began = time.perf_counter()
            step()
            if prompt.is_cuda:
                torch.cuda.synchronize()
            took = (time.perf_counter() - began, decode(decoders[name], prompt, requested.tokens))
            if number >= 2:
                trained[name].append(took[0])
                decoded[name].append(took[1])
    return trained, decoded


def ratios(seconds: Mapping[str, list[float]]) -> list[float]:
    return [b / a for a, b in zip(seconds["full"], seconds["stage one"], strict=True)]


if __name__ == "__main__":
    main()
