"""The precision of updates and of held-out losses, fewer bits for what a training holds, and the optimizer.

That of DEMix tables 9–12: AdamW, warm-up, polynomial decay, and clipping by the norm of all gradients.

What is trained is held in float32 as long as it is trained: an update is often smaller than the steps of bfloat16. Or,
to save memory, in bfloat16, with updates that are rounded up or down at random.
Frozen weights stay as they are stored in bf16, where autocast computes with both; in fp32 they are held in float32,
which loses nothing. After the training all have their stored precision again, as they will have when they are loaded.

By bitsandbytes AdamW's two moments in 8 bits (Dettmers et al. 2022), and frozen linear maps in 4 bits (NF4 with doubly
quantized constants, as QLoRA has them: Dettmers et al. 2023). By an AdamW of our own trained weights and their
gradients in bfloat16.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from engine.config import Precision, TrainingConfig
from engine.errors import EngineError, NonFiniteLossError, TrainingError
from engine.models.expert_model import TrainableModel
from engine.models.matrix_products import FasterLinear
from engine.models.rows import Rows
from engine.training.distributed import SINGLE_PROCESS, ProcessGroup, is_divided, local_part

_FLOATS = frozenset((torch.float32, torch.float16, torch.bfloat16))


class HasTensors(Protocol):
    """A module, or what has one's weights."""

    def parameters(self) -> Iterator[nn.Parameter]: ...

    def buffers(self) -> Iterator[Tensor]: ...


def precision_on(precision: Precision, device: torch.device) -> Literal["fp32", "bf16"]:
    """The precision of passes on a device: auto is bf16 on a GPU with units for it, fp32 elsewhere."""
    if precision != "auto":
        return "fp32" if precision == "fp32" else "bf16"
    has_units = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bf16" if has_units else "fp32"


def autocast_for(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Autocast for a precision on a device; for this thread only (`engine.inference.scores` enters its own)."""
    is_mixed = precision_on(precision, device) == "bf16"
    return torch.autocast(device.type, torch.bfloat16) if is_mixed else nullcontext()


@contextmanager
def in_training_precision(
    model: HasTensors, trained: Iterable[Tensor], precision: Precision, device: torch.device
) -> Iterator[None]:
    """Holds weights as `hold_in_training_precision` does; brings them to their stored precision at the end.

    The weights stay the same objects, so views and ties of them hold.
    """
    stored = hold_in_training_precision(model, trained, precision, device)
    try:
        yield
    finally:
        for tensor, dtype in stored:
            tensor.grad = None
            tensor.data = tensor.data.to(dtype)


def hold_in_training_precision(
    model: HasTensors, trained: Iterable[Tensor], precision: Precision, device: torch.device
) -> list[tuple[Tensor, torch.dtype]]:
    """Holds trained weights in float32, and in fp32 also all others; in bf16_weights trained ones in bfloat16.

    Returns those that changed, with their stored precision.
    """
    every = chain(model.parameters(), model.buffers()) if precision_on(precision, device) == "fp32" else trained
    held = torch.bfloat16 if precision == "bf16_weights" else torch.float32
    stored = {id(tensor): (tensor, tensor.dtype) for tensor in every if tensor.dtype in _FLOATS - {held}}
    for tensor, _ in stored.values():
        tensor.data = tensor.data.to(held)
    return list(stored.values())


INSTALL = "pip install 'expert-workbench[low-bits]'"
_PIECE_NUMBERS = 1 << 24  # 64 MiB in float32
_EXPERTS = ".experts."  # in the name of an expert's module: as small as what is trained


def adamw_8bit(groups: Sequence[Sequence[nn.Parameter]], config: TrainingConfig) -> torch.optim.Optimizer:
    """AdamW whose moments are held in 8 bits, but for parameters of fewer than 4,096 numbers."""
    optimizer: torch.optim.Optimizer = _library().optim.AdamW8bit(
        [{"params": list(some)} for some in groups if some],
        lr=config.peak_rate,
        betas=(config.beta1, config.beta2),
        eps=config.epsilon,
        weight_decay=config.weight_decay,
    )
    return optimizer


class Bf16AdamW(torch.optim.AdamW):
    """AdamW of weights in bfloat16, with moments in float32 and no copy of the weights in float32.

    Each update is computed in float32 and rounded up or down at random, so that weights move as they would in float32
    on average (stochastic rounding, `bf16_stochastic_round` of torchao's optimizers). Rounded to the nearest number,
    updates smaller than 1/512 of a weight would be lost. Draws are those of the global generator, which the training
    seeds at each step.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Updates each parameter that has a gradient."""
        del closure
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)

    def _update(self, parameter: nn.Parameter, group: dict[str, Any]) -> None:
        state, gradient = self.state[parameter], parameter.grad
        assert gradient is not None
        if not state:
            state["step"] = torch.zeros((), device=parameter.device)
            for moment in ("exp_avg", "exp_avg_sq"):
                state[moment] = torch.zeros_like(parameter, dtype=torch.float32)
        tensors = (parameter, gradient, state["exp_avg"], state["exp_avg_sq"])
        for weights, gradients, means, squares in zip(*map(_pieces, tensors), strict=True):
            exact = weights.float()
            adamw(
                *([exact], [gradients.float()], [means], [squares], [], [state["step"].clone()]),
                fused=True,
                amsgrad=False,
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                lr=group["lr"],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                maximize=False,
            )
            weights.copy_(stochastic_round(exact))
        state["step"] += 1


def _pieces(tensor: Tensor) -> Sequence[Tensor]:
    """Rows of a tensor, so few that their copies in float32 take little memory."""
    rows = torch.atleast_1d(tensor)
    pieces: tuple[Tensor, ...] = rows.split(max(1, _PIECE_NUMBERS * len(rows) // max(1, rows.numel())))
    return pieces


def stochastic_round(exact: Tensor) -> Tensor:
    """Float32 numbers as one of the two neighbours in bfloat16 each, the nearer the likelier: right on average."""
    bits = exact.contiguous().view(torch.int32)
    noise = torch.randint_like(bits, 1 << 16)  # as many as float32 has bits that bfloat16 lacks
    return ((bits + noise) & -(1 << 16)).view(torch.float32).bfloat16()


@contextmanager
def frozen_in_4bit(model: Any, precision: Precision, device: torch.device) -> Iterator[None]:
    """Within it, frozen linear maps of a model's layers compute from 4-bit weights; the exact ones wait in main memory.

    Heads and embeddings stay as they are. Raises TrainingError when no linear map is frozen.
    """
    library, dtype = _library(), torch.bfloat16 if precision_on(precision, device) == "bf16" else torch.float32
    places = list(_frozen_maps(model))
    if not places:
        raise TrainingError(
            "No linear map of this model is frozen, so nothing can be held in 4 bits.",
            "Train without load_in_4bit, or with a method whose base is frozen (lora, MoDE).",
        )
    for parent, name, exact in places:
        setattr(parent, name, _in_4bit(library, exact, dtype, device))
    if device.type == "cuda":
        torch.cuda.empty_cache()
    try:
        yield
    finally:
        for parent, name, exact in places:
            exact.weight.data = exact.weight.data.to(device)
            setattr(parent, name, exact)


def _frozen_maps(model: nn.Module) -> Iterable[tuple[nn.Module, str, nn.Linear]]:
    """Frozen linear maps with their parents and names; those that others share weights with are left out."""
    uses: dict[int, int] = {}
    for module in model.modules():
        for weight in module.parameters(recurse=False):
            uses[id(weight)] = uses.get(id(weight), 0) + 1
    decoders: list[Any] = [weight for weight in model.modules() if hasattr(weight, "get_output_embeddings")]
    heads = {id(weight.get_output_embeddings()) for weight in decoders}
    for path, parent in model.named_modules():
        for name, child in parent.named_children():
            is_map = (
                type(child) in (nn.Linear, FasterLinear)
                and not child.weight.requires_grad
                and uses[id(child.weight)] == 1
            )
            if is_map and id(child) not in heads and _EXPERTS not in f".{path}.{name}.":
                yield parent, name, child


def _in_4bit(library: Any, exact: nn.Linear, dtype: torch.dtype, device: torch.device) -> nn.Module:
    """The same map from 4-bit weights; moves the exact weights to the main memory."""
    exact.weight.data = exact.weight.data.cpu()
    has_bias = exact.bias is not None
    short: nn.Module = library.nn.Linear4bit(
        exact.in_features, exact.out_features, bias=has_bias, compute_dtype=dtype, quant_type="nf4", device="meta"
    )
    short.weight = library.nn.Params4bit(
        exact.weight.data.to(device, dtype), requires_grad=False, quant_type="nf4", compress_statistics=True
    )
    short.bias = exact.bias
    return short.to(device)


def _library() -> Any:
    try:
        import bitsandbytes
    except ImportError:
        raise EngineError("8-bit optimizers and 4-bit weights need bitsandbytes.", f"Install it: {INSTALL}.") from None
    return bitsandbytes


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
    warmup = math.ceil(config.warmup * config.max_steps)
    if step < warmup:
        return config.peak_rate * (step + 1) / warmup
    left = (config.max_steps - step) / max(1, config.max_steps - warmup)
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
