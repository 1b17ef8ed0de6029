"""The optimizer of DEMix tables 9–12: AdamW, warm-up, polynomial decay, and clipping by the norm of all gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from engine.config import TrainingConfig
from engine.errors import NonFiniteLossError
from engine.models.expert_model import TrainableModel
from engine.models.rows import Rows
from engine.training.distributed import SINGLE_PROCESS, ProcessGroup, is_divided, local_part
from engine.training.precision import Bf16AdamW, adamw_8bit


def make_optimizer(parameters: Mapping[str, nn.Parameter], config: TrainingConfig) -> torch.optim.Optimizer:
    """AdamW over the given parameters; decay on all of them, as in the paper's code base.

    There may be none in a process whose experts are all in other processes.
    """
    divided = {name for name, parameter in parameters.items() if is_divided(parameter)}
    parts = [parameter for name, parameter in parameters.items() if name in divided]
    wholes = [parameter for name, parameter in parameters.items() if name not in divided]
    if config.optimizer == "adamw_8bit":
        return adamw_8bit([parts, wholes], config)
    kind = Bf16AdamW if config.precision == "bf16_weights" else torch.optim.AdamW
    return kind(
        [{"params": some} for some in (parts, wholes)],  # one fused update takes one of the two kinds
        lr=config.peak_rate,
        betas=(config.beta1, config.beta2),
        eps=config.epsilon,
        weight_decay=config.weight_decay,
        fused=True,
    )


def learning_rate(step: int, config: TrainingConfig) -> float:
    """The rate of update `step`, counted from 0: linear warm-up, then polynomial decay towards zero."""
    warmup = math.ceil(config.warmup * config.num_steps)
    if step < warmup:
        return config.peak_rate * (step + 1) / warmup
    left = (config.num_steps - step) / max(1, config.num_steps - warmup)
    return config.peak_rate * float(left**config.decay_power)


@dataclass(frozen=True)
class GradientGroup:
    """Parameters whose gradients are multiplied by `factor` before clipping; `key` is None for shared ones."""

    parameters: Sequence[nn.Parameter]
    factor: float = 1.0
    key: str | None = None

    @property
    def gradients(self) -> list[Tensor]:
        """What this process holds of them."""
        return [local_part(parameter.grad) for parameter in self.parameters if parameter.grad is not None]


def gradient_groups(model: TrainableModel, rows: Rows) -> list[GradientGroup]:
    """Shared gradients unchanged (means over all sequences); an expert's rescaled to its own mean (DEMix §3.4).

    `rows` are those of the full batch; experts of other processes are left out.
    """
    experts = [
        GradientGroup(list(model.expert_parameters(key).values()), sum(rows.num_rows) / count, key)
        for key, count in zip(rows.keys, rows.num_rows, strict=True)
        if key in model.keys
    ]
    return [GradientGroup(list(model.shared_parameters().values())), *experts]


def clip_and_step(
    optimizer: torch.optim.Optimizer,
    groups: Sequence[GradientGroup],
    step: int,
    config: TrainingConfig,
    team: ProcessGroup = SINGLE_PROCESS,
) -> None:
    """Clips all gradients together and makes one update; raises NonFiniteLossError before anything is changed."""
    norm = total_norm(groups, team)
    if not math.isfinite(norm):
        raise NonFiniteLossError(
            f"The gradients of step {step + 1} are not finite (their norm is {norm}).",
            "Lower the learning rate, or clip gradients.",
        )
    clip = min(1.0, config.clip / (norm + 1e-6)) if config.clip else 1.0
    for group in groups:
        if group.factor * clip != 1.0:
            for gradients in _by_device(group.gradients):
                torch._foreach_mul_(gradients, group.factor * clip)
    for options in optimizer.param_groups:
        options["lr"] = learning_rate(step, config)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def total_norm(groups: Sequence[GradientGroup], team: ProcessGroup = SINGLE_PROCESS) -> float:
    """The L2 norm of all gradients, each group scaled by its factor and counted once in the process group."""
    counted = [group for group in groups if group.gradients and team.owns_norm(group.key)]
    squares = [(group.factor * _norm(group.gradients)) ** 2 for group in counted]
    return math.sqrt(team.all_sum(math.fsum(squares)))


def _norm(gradients: Sequence[Tensor]) -> float:
    """In float32, also of gradients in bfloat16."""
    norms = [
        norm.to(gradients[0].device)
        for some in _by_device(gradients)
        for norm in torch._foreach_norm(some, dtype=torch.float32)
    ]
    return float(torch.stack(norms).norm())


def _by_device(tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    by_device: dict[torch.device, list[Tensor]] = {}
    for tensor in tensors:
        by_device.setdefault(tensor.device, []).append(tensor)
    return list(by_device.values())
