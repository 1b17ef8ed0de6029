"""The least that a training takes, from the shapes of its tensors, compared with what there is.

Weights, a gradient of each trained weight, and what the optimizer keeps of it are all there at every update, and so is
the best copy of them with patience. Activations, libraries and working copies come on top, so what is refused here
cannot run; what is not refused may still lack memory. What a training really holds as it starts is shown to observers
in this process, such as a probe of its costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from engine.config import TrainingConfig
from engine.device import megabytes, most_main_memory, most_memory, shapes_only
from engine.errors import DoesNotFitError, TrainingError
from engine.events import Requirements
from engine.models.compiled import checkpointable_layers, checkpointed_activations, compiled_layers, compiled_loss
from engine.models.discovery import routers
from engine.models.expert_model import TrainableModel, trainable
from engine.models.rows import Rows
from engine.training.checkpoint import KEPT
from engine.training.data import BlockSampler
from engine.training.distributed import local_part
from engine.training.optimizer import HasTensors, frozen_in_4bit, in_training_precision, precision_on
from engine.training.run_state import LEAST_BYTES, has_idle_cores
from engine.training.update_bytes import FLOAT32, update_bytes

_SOON_BUILT = 32 << 20  # bytes of a seed's weights: such a model is compared once it is built


@dataclass(frozen=True)
class Needs:
    """Bytes that one process of a training holds at an update, at least."""

    device: torch.device
    loaded: int  # all weights as they are stored
    result: int  # the trained ones as they are stored
    weights: int
    gradients: int
    optimizer: int
    best: int  # in the main memory

    @property
    def on_device(self) -> int:
        """Memory of the GPU, or of the machine where that computes: at an update, or while the model is loaded."""
        at_update = self.weights + self.gradients + self.optimizer + (0 if self._has_gpu else self.best)
        return max(self.loaded, at_update)

    @property
    def beside_gpu(self) -> int:
        """Main memory, to which a checkpoint is copied from a GPU; 0 without one."""
        return self.checkpoint if self._has_gpu else 0

    @property
    def checkpoint(self) -> int:
        """Bytes of the last checkpoint, which has no best weights in addition to its own."""
        return self.gradients + self.optimizer  # trained weights are as large as their gradients

    @property
    def _has_gpu(self) -> bool:
        return self.device.type == "cuda"

    def event(self, config: TrainingConfig, *, is_single: bool = True) -> Requirements:
        """These needs and the disk of checkpoints, for the job's log."""
        num_checkpoints = 1 if config.patience else -(-config.max_steps // config.checkpoint_every)  # it may stop early
        kept = min(KEPT, num_checkpoints) * self.checkpoint
        gpu, memory = (self.on_device, self.beside_gpu) if self._has_gpu else (0, self.on_device)
        is_large = config.max_steps > config.checkpoint_every and self.checkpoint >= LEAST_BYTES
        is_copied = is_large and has_idle_cores(is_single, self._has_gpu)
        copy = f" {megabytes(self.checkpoint + self.best)} for a copy of a checkpoint where they are free," * is_copied
        subject = "It takes" if is_single else "Its first process takes"
        sentence = (
            f"{subject} at least {self._words()}, {megabytes(kept)} of disk for checkpoints and "
            f"{megabytes(self.result)} for its result. Activations come on top,{copy} and libraries, hundreds of MB."
        )
        return Requirements(sentence, memory, gpu, kept, self.result)

    def _words(self) -> str:
        parts = {"weights": self.weights, "gradients": self.gradients, "optimizer": self.optimizer, "best": self.best}
        listed = ", ".join(f"{name} {megabytes(size)}" for name, size in parts.items() if size)
        memory = "the GPU's memory" if self._has_gpu else "memory"
        return f"{megabytes(self.on_device)} of {memory} ({listed})"

    def excess(self) -> str:
        """Why it does not fit here, as a sentence; empty where it may, and where free memory is not known."""
        most = most_memory(self.device)
        if most is not None and self.on_device > most:
            return f"It takes at least {self._words()}, and this process can have {megabytes(most)}."
        beside = most_main_memory() if self.beside_gpu else None
        if beside is not None and self.beside_gpu > beside:
            needed = megabytes(self.beside_gpu)
            return f"Its checkpoints take at least {needed} of memory, and this process can have {megabytes(beside)}."
        return ""


def least_needs(
    model: HasTensors, trained: Mapping[str, nn.Parameter], config: TrainingConfig, device: torch.device
) -> Needs:
    """What a training of these parameters of a model holds on a device, at least; none may be in a checkpoint yet."""
    sizes = [local_part(one).numel() for one in trained.values()]
    own = {id(one) for one in trained.values()}
    every = list(_distinct([*model.parameters(), *model.buffers()]))
    in_fp32 = precision_on(config.precision, device) == "fp32"
    frozen = [_frozen_bytes(one, config, in_fp32, device) for one in every if id(one) not in own]
    held = update_bytes(sizes, sum(frozen), config)
    return Needs(
        device=device,
        loaded=sum(map(_bytes, every)),
        result=sum(_bytes(one) for one in _distinct(trained.values())),
        weights=held.weights,
        gradients=held.gradients,
        optimizer=held.optimizer,
        best=held.best,
    )


def require_memory(
    needs: Needs, config: TrainingConfig, needs_with: Callable[[TrainingConfig], Needs] | None = None
) -> None:
    """Raises DoesNotFitError where needs exceed the memory, with the nearest options that may fit by `needs_with`."""
    excess = needs.excess()
    if not excess:
        return
    smaller = _fewer_bits(config) if needs_with else ()
    fits = next((options for options, one in smaller if needs_with and not needs_with(one).excess()), "")
    raise DoesNotFitError(excess, f"It may fit with {fits}." if fits else _SMALLER)


def require_memory_to_build(
    build: Callable[[], TrainableModel],
    seed_folder: Path,
    only_experts: Sequence[str] | None,
    config: TrainingConfig,
    device: torch.device,
) -> None:
    """Raises DoesNotFitError before a model is built that cannot be trained; `build` is called only for its shapes.

    Models of small seeds are left to `require_memory`, when they are built.
    """
    if sum(file.stat().st_size for file in seed_folder.glob("*.safetensors")) < _SOON_BUILT:
        return
    with shapes_only():
        model = build()
    if config.shard:  # it is built in the main memory; what each process then has of it is not known yet
        as_stored = replace(config, precision="bf16")
        require_memory(least_needs(model, {}, as_stored, torch.device("cpu")), config)
        return
    trained = trainable(model, only_experts)

    def needs_with(config: TrainingConfig) -> Needs:
        return least_needs(model, trained, config, device)

    require_memory(needs_with(config), config, needs_with)


def _fewer_bits(config: TrainingConfig) -> Iterator[tuple[str, TrainingConfig]]:
    """Options that need less of what is counted here, the smallest change first."""
    if config.precision == "bf16_weights":  # for AdamW only
        yield "load_in_4bit", replace(config, load_in_4bit=True)
        return
    short = replace(config, optimizer="adamw_8bit")
    yield "optimizer adamw_8bit", short
    yield "load_in_4bit", replace(config, load_in_4bit=True)
    yield "optimizer adamw_8bit, load_in_4bit", replace(short, load_in_4bit=True)


def _frozen_bytes(tensor: Tensor, config: TrainingConfig, in_fp32: bool, device: torch.device) -> int:
    own = local_part(tensor)
    if config.load_in_4bit and device.type == "cuda":  # the exact ones wait in the main memory
        return own.numel() // 2
    is_half = own.dtype in (torch.float16, torch.bfloat16)
    return FLOAT32 * own.numel() if is_half and in_fp32 else _bytes(own)


def _bytes(tensor: Tensor) -> int:
    own = local_part(tensor)
    return own.numel() * own.element_size()


def _distinct(tensors: Iterable[Tensor]) -> Iterator[Tensor]:
    """The tensors, those in one place of memory once; without memory, those that are one object."""
    seen: set[int] = set()
    for tensor in tensors:
        own = local_part(tensor)
        address = id(tensor) if own.is_meta else own.untyped_storage().data_ptr()
        if address not in seen:
            seen.add(address)
            yield tensor


_SMALLER = (
    "Retry it when more is free, choose a smaller seed model or a method whose base is frozen (lora, MoDE), or train "
    "on a machine with more memory."
)


class MemorySaving:
    """The options of one training that change what its weights and passes take."""

    def __init__(
        self, model: TrainableModel, parameters: Mapping[str, nn.Parameter], config: TrainingConfig, *, is_single: bool
    ) -> None:
        """`is_single`: no other process trains with this one. Call it while the weights are as they are stored."""
        self.num_parts = 1  # in which the rows of a batch are read
        self._model, self._parameters, self._config, self._is_single = model, parameters, config, is_single
        self._recomputes, self._until_end = False, ExitStack()
        self._needs = self._needs_with(config)

    def _needs_with(self, config: TrainingConfig) -> Needs:
        return least_needs(self._model, self._parameters, config, self._model.device)

    def requirements(self) -> Requirements:
        """What the training takes at least; raises DoesNotFitError where that is more memory than there is."""
        require_memory(self._needs, self._config, self._needs_with if self._is_single else None)  # else no bits to save
        return self._needs.event(self._config, is_single=self._is_single)

    @contextmanager
    def stored_bits(self) -> Iterator[None]:
        """Within it weights have the bits of the training; after it everything is as before.

        Raises TrainingError for options that were never tried in several processes that train together.
        """
        config, device = self._config, self._model.device
        if config.of_one_process and not self._is_single:
            raise TrainingError(
                f"{' and '.join(config.of_one_process)} work in one process only.",
                "Train in one process, or without these options.",
            )
        short = frozen_in_4bit(self._model, config.precision, device) if config.load_in_4bit else nullcontext()
        trained = self._parameters.values()
        with short, in_training_precision(self._model, trained, config.precision, device), self._until_end:
            yield

    def replace_layers(self, rows: Rows) -> None:
        """Fuses, compiles and recomputes layers as configured, until `stored_bits` ends."""
        self._until_end.enter_context(fused_activations(self._model))
        if self._config.compile:
            self._until_end.enter_context(compiled_loss(self._model.lm))
            self._until_end.enter_context(compiled_layers(self._model.lm, rows))
        if self._config.activation_checkpointing:
            self._recompute_activations()

    def _recompute_activations(self) -> None:
        self._until_end.enter_context(checkpointed_activations(self._model.lm))
        self._recomputes = True

    def reduce(self, num_rows: int) -> str:
        """Makes the passes of later updates take less, and says by what; empty if that is not possible.

        Processes that train together wait for each other within an update, so theirs cannot change.
        """
        if not self._is_single:
            return ""
        if not self._recomputes and checkpointable_layers(self._model.lm):
            self._recompute_activations()
            return (
                "activations are computed again in the backward pass (activation_checkpointing), which changes no "
                "number but takes a third more operations"
            )
        if self.num_parts >= num_rows or routers(self._model.lm):  # routers spread the tokens of all rows evenly
            return ""
        self.num_parts = min(2 * self.num_parts, num_rows)
        return (
            f"the {num_rows} rows of a batch are read in {self.num_parts} parts, which changes only the last digits of "
            "losses but takes longer"
        )


@contextmanager
def fused_activations(model: Any) -> Iterator[None]:
    """Within it, each “gelu_new” of the model is computed by PyTorch's kernel; after it, as transformers does."""
    from transformers.activations import GELUTanh, NewGELUActivation

    places = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if type(child) is NewGELUActivation
    ]
    for parent, name, _ in places:
        setattr(parent, name, GELUTanh())
    try:
        yield
    finally:
        for parent, name, child in places:
            setattr(parent, name, child)


@dataclass(frozen=True)
class TrainingTensors:
    """The model, what of it is trained, with which optimizer, and on which batches."""

    model: TrainableModel
    parameters: Mapping[str, nn.Parameter]
    optimizer: torch.optim.Optimizer
    sampler: BlockSampler

    def weight_bytes(self) -> int:
        """Bytes of all weights and buffers; a tensor that stands in two places counts once."""
        return _storage_bytes([*self.model.parameters(), *self.model.buffers()])

    def trained_bytes(self) -> int:
        """Bytes of what is trained, and so of its gradients."""
        return _storage_bytes(self.parameters.values())

    def num_trained(self) -> int:
        """Trainable parameters."""
        return sum(parameter.numel() for parameter in self.parameters.values())

    def optimizer_bytes(self) -> int:
        """Bytes of the optimizer's state; 0 before the first update."""
        states = self.optimizer.state.values()
        return _storage_bytes(value for state in states for value in state.values() if isinstance(value, Tensor))


Observer = Callable[[TrainingTensors], None]
_observers: list[Observer] = []


@contextmanager
def observed_by(observer: Observer) -> Iterator[None]:
    """Calls the observer at the start of each training in this process, as long as the block lasts."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)


def show(held: TrainingTensors) -> None:
    """Called by a training before its first update."""
    for observer in _observers:
        observer(held)


def _storage_bytes(tensors: Iterable[Tensor]) -> int:
    storages = [tensor.untyped_storage() for tensor in tensors]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())
