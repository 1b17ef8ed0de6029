"""Communication between the processes of a training: shared gradients among all, an expert's in its group (§3.4).

A training in one process is a group of one, for which every operation is trivial; the loop is the same.

Shapes: A accumulated batches, B rows, T positions.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, TypeGuard

import torch
import torch.distributed as dist
from torch import Tensor

from engine.errors import LostRankError, TrainingError
from engine.models.expert_model import TrainableModel
from engine.training.data import DomainText, PackedDomain

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

_BUCKET_NUMBERS = 1 << 24  # gradients reduced at once: 64 MiB in float32
_PATIENCE = timedelta(days=7)  # the caller may pause between two events


class ProcessGroup:
    """A single process; also the interface of process groups."""

    rank = 0
    num_processes = 1

    def rows(self, key: str, num_rows: int) -> range:
        """The rows of an expert that this process takes."""
        del key
        return range(num_rows)

    def has_expert(self, key: str) -> bool:
        """True if this process has the expert."""
        del key
        return True

    def owns_norm(self, key: str | None) -> bool:
        """True if this process counts the norm of an expert's gradients, or (None) of the shared ones."""
        del key
        return True

    def sum_gradients(self, key: str | None, gradients: Sequence[Tensor]) -> None:
        """Sums gradients in place over the processes that have the expert; over all for None."""

    def join_forward(self, model: TrainableModel, num_positions: int) -> None:
        """Takes part in a forward pass without gradients in which this process has no row, if others need it to."""

    def step(self) -> None:
        """Called before each update, once this process has its gradients."""

    def all_sum(self, value: float) -> float:
        """The sum of the values of all processes, the same for all."""
        return value

    def sum_over_loops(self, value: float) -> float:
        """The same over the processes that run this loop; those that only serve one do not take part."""
        return value

    def gather_losses(self, losses_ABT: Tensor, places: Sequence[int], num_rows: int) -> Tensor:
        """The losses of all `num_rows` rows from those of each process, whose rows are at `places`."""
        del places, num_rows
        return losses_ABT

    def broadcast(self, value: int) -> int:
        """The value of the first process."""
        return value

    def wait(self) -> None:
        """Returns when all processes have called it."""

    def own_state(self, state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """What this process writes of a training's state, whose tensors are named `kind/expert:place`."""
        return state

    def save_others(self) -> None:
        """Called before this process writes a checkpoint: those that run no loop of their own write theirs."""

    def on_resume(self, step: int) -> None:
        """Called once, before the first update."""

    def on_best(self) -> None:
        """Called, with patience, when an evaluation was the best so far."""

    def finish(self) -> None:
        """Called at the end of a training that was not stopped."""


SINGLE_PROCESS = ProcessGroup()


class RankGroup(ProcessGroup):
    """One of several processes. All of them must call every method in the same order."""

    def __init__(self, layout: Layout, rank: int) -> None:
        """Needs an initialised process group of the layout's size."""
        self.layout, self.rank, self.num_processes = layout, rank, layout.num_ranks
        self._groups: dict[str | None, dist.ProcessGroup | None] = {None: dist.group.WORLD}
        with _peers():
            for key in layout.keys:
                if len(layout.group(key)) > 1:
                    self._groups[key] = dist.new_group(list(layout.group(key)))
            self._control = dist.new_group(backend="gloo", timeout=_PATIENCE)

    def rows(self, key: str, num_rows: int) -> range:
        return self.layout.rows(key, self.rank, num_rows)

    def has_expert(self, key: str) -> bool:
        return self.rank in self.layout.group(key)

    def owns_norm(self, key: str | None) -> bool:
        return self._is_first(key)

    def sum_gradients(self, key: str | None, gradients: Sequence[Tensor]) -> None:
        group = self._groups.get(key)
        if group is None:
            return  # only this process has the expert
        for bucket in _buckets(gradients):
            flat = torch.cat([gradient.flatten() for gradient in bucket])
            with _peers():
                dist.all_reduce(flat, group=group)
            parts = flat.split([gradient.numel() for gradient in bucket])
            torch._foreach_copy_(bucket, [part.view_as(g) for part, g in zip(parts, bucket, strict=True)])

    def all_sum(self, value: float) -> float:
        total = torch.tensor([value], dtype=torch.float64)
        with _peers():
            dist.all_reduce(total, group=self._control)
        return float(total)

    def sum_over_loops(self, value: float) -> float:
        return self.all_sum(value)

    def gather_losses(self, losses_ABT: Tensor, places: Sequence[int], num_rows: int) -> Tensor:
        all_ABT = losses_ABT.new_zeros(len(losses_ABT), num_rows, losses_ABT.shape[-1])
        all_ABT[:, list(places)] = losses_ABT
        with _peers():
            dist.all_reduce(all_ABT)
        return all_ABT

    def broadcast(self, value: int) -> int:
        shared = torch.tensor([value])
        with _peers():
            dist.broadcast(shared, 0, group=self._control)
        return int(shared)

    def wait(self) -> None:
        self.all_sum(0.0)

    def own_state(self, state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Parts of what is divided; else what the first process of those that have it writes."""
        own = {}
        for name, tensor in state.items():
            expert, colon, _ = name.partition("/")[2].partition(":")
            if is_divided(tensor) or self._is_first(expert if colon else None):
                own[name] = tensor
        return own

    def _is_first(self, key: str | None) -> bool:
        return self.rank == (0 if key is None else self.layout.group(key).start)


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Tensors in order, together at most a bucket's size (one that is larger goes on its own)."""
    bucket: list[Tensor] = []
    size = 0
    for tensor in tensors:
        if bucket and size + tensor.numel() > _BUCKET_NUMBERS:
            yield bucket
            bucket, size = [], 0
        bucket.append(tensor)
        size += tensor.numel()
    if bucket:
        yield bucket


@contextmanager
def _peers() -> Iterator[None]:
    """Raises LostRankError when communication fails, which means that another process is gone."""
    try:
        yield
    except RuntimeError as error:
        raise LostRankError(
            f"A process of the training is gone ({str(error).splitlines()[0]}).",
            "See the log of the other processes.",
        ) from error


def is_divided(tensor: Tensor) -> TypeGuard[DTensor]:
    """Whether this process holds only a part. Imports nothing: half a second, for every undivided training."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def local_part(tensor: Tensor) -> Tensor:
    """The part that this process holds, in the same memory."""
    return tensor.to_local() if is_divided(tensor) else tensor


def first_row(tensor: Tensor) -> int:
    """Where the part that this process holds begins in the full tensor: FSDP2 divides rows, in order."""
    if not is_divided(tensor):
        return 0
    rows, mesh = tensor.shape[0], tensor.device_mesh
    assert mesh.ndim == 1
    assert [placement.is_shard(0) for placement in tensor.placements] == [True]
    return min(rows, mesh.get_local_rank() * -(-rows // mesh.size()))


def part_like(full: Tensor, held: Tensor) -> Tensor:
    """The part of a full tensor that corresponds to what this process holds of `own`; a number stays as it is."""
    if not is_divided(held) or full.dim() == 0:
        return full
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(full.to(held.device), held.device_mesh, held.placements, src_data_rank=None)


def copy_aside(tensor: Tensor) -> Tensor:
    """A copy without gradients: in the main memory, or of a part where the part is."""
    detached = tensor.detach()
    return detached.clone() if is_divided(tensor) else detached.to("cpu", copy=True)


@dataclass(frozen=True)
class Layout:
    """`num_ranks` processes over experts, both in order; loads differ by at most one.

    With fewer processes than experts each process carries several experts; with more, each expert has a group of
    several processes, which share its rows out.
    """

    keys: tuple[str, ...]
    num_ranks: int

    def group(self, key: str) -> range:
        """The ranks that hold an expert; the first leads."""
        number = self.keys.index(key)
        first = number * self.num_ranks // len(self.keys)
        return range(first, max(first + 1, (number + 1) * self.num_ranks // len(self.keys)))

    def held(self, rank: int) -> tuple[str, ...]:
        """The experts that a process holds."""
        return tuple(key for key in self.keys if rank in self.group(key))

    def rows(self, key: str, rank: int, num_rows: int) -> range:
        """The rows of an expert that a process takes; no two processes take the same."""
        group = self.group(key)
        return range(rank - group.start, num_rows, len(group)) if rank in group else range(0)


def most_ranks(texts: Sequence[DomainText | PackedDomain], sequences_per_domain: int) -> int:
    """The number of processes up to which each has a row of every batch."""
    rows = _rows_by_key(texts, sequences_per_domain)
    return len(rows) * min(rows.values())


def layout_of(texts: Sequence[DomainText | PackedDomain], sequences_per_domain: int, num_ranks: int) -> Layout:
    """The layout for these texts; raises TrainingError when a process would have no row in a batch."""
    rows = _rows_by_key(texts, sequences_per_domain)
    layout = Layout(tuple(rows), num_ranks)
    for key, num_rows in rows.items():
        size, sequences = len(layout.group(key)), num_rows // sequences_per_domain
        if size > num_rows:
            names = ", ".join(f"“{text.name}”" for text in texts if text.expert == key)
            raise TrainingError(
                f"The processes that share {names} must be at most its {num_rows} sequences in a batch, but are {size} "
                "instead.",
                f"Choose at most {most_ranks(texts, sequences_per_domain)} processes, "
                f"or sequences_per_domain of at least {-(-size // sequences)}.",
            )
    return layout


def _rows_by_key(texts: Sequence[DomainText | PackedDomain], sequences_per_domain: int) -> dict[str, int]:
    """Rows of each expert in a batch, in the order of a batch."""
    return {key: number * sequences_per_domain for key, number in Counter(text.expert for text in texts).items()}
