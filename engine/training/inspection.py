"""Shows what a training holds as it starts to observers in this process, such as a probe of its costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from engine.models.expert_model import TrainableModel
from engine.training.data import BlockSampler


@dataclass(frozen=True)
class TrainingTensors:
    """The model, what of it is trained, with which optimizer, and on which batches."""

    model: TrainableModel
    parameters: Mapping[str, nn.Parameter]
    optimizer: torch.optim.Optimizer
    sampler: BlockSampler

    def weight_bytes(self) -> int:
        """Bytes of all weights and buffers; a tensor that stands in two places counts once."""
        return _bytes([*self.model.parameters(), *self.model.buffers()])

    def trained_bytes(self) -> int:
        """Bytes of what is trained, and so of its gradients."""
        return _bytes(self.parameters.values())

    def num_trained(self) -> int:
        """Trainable parameters."""
        return sum(parameter.numel() for parameter in self.parameters.values())

    def optimizer_bytes(self) -> int:
        """Bytes of the optimizer's state; 0 before the first update."""
        states = self.optimizer.state.values()
        return _bytes(value for state in states for value in state.values() if isinstance(value, Tensor))


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


def _bytes(tensors: Iterable[Tensor]) -> int:
    storages = [tensor.untyped_storage() for tensor in tensors]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())
