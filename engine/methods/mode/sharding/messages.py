"""What passes between the backbone's process and one with experts: words, and hidden states.

Words are JSON with tensors beside it. They go over gloo, and are waited for as long as it takes, since between two
passes the backbone may take its time. Hidden states go over the process group's own backend, and their shapes are known
on both sides. Nothing is pickled.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load, save
from torch import Tensor

from engine.errors import LostRank

_PATIENCE = timedelta(days=7)


def control_group() -> Any:
    """The group that words go over. Every process must ask for it, at the same point."""
    return dist.new_group(backend="gloo", timeout=_PATIENCE)


class Peer:
    """One end of the line to another process. Raises LostRank when that process is gone."""

    def __init__(self, peer: int, group: Any) -> None:
        self.peer, self._group = peer, group
        self._on_cpu = dist.get_backend() == "gloo"
        self._sent: list[tuple[Any, Tensor]] = []  # a tensor must live until it is there

    def send(self, do: str, tensors: Sequence[Tensor] = (), **said: Any) -> None:
        """Sends words and waits until they are there."""
        words = json.dumps({"do": do, **said}).encode()
        named = {
            f"{n}": one.detach().cpu().clone(memory_format=torch.contiguous_format) for n, one in enumerate(tensors)
        }
        parcel = bytearray(words + save(named))
        with self._together():
            dist.send(torch.tensor([len(words), len(parcel)]), self.peer, group=self._group)
            dist.send(torch.frombuffer(parcel, dtype=torch.uint8), self.peer, group=self._group)

    def receive(self) -> dict[str, Any]:
        """Waits for words; `tensors` among them if any came."""
        sizes = torch.empty(2, dtype=torch.long)
        with self._together():
            dist.recv(sizes, self.peer, group=self._group)
            parcel = torch.empty(int(sizes[1]), dtype=torch.uint8)
            dist.recv(parcel, self.peer, group=self._group)
        text = parcel.numpy().tobytes()
        said: dict[str, Any] = json.loads(text[: int(sizes[0])])
        tensors = load(text[int(sizes[0]) :])
        return said | ({"tensors": [tensors[f"{number}"] for number in range(len(tensors))]} if tensors else {})

    def send_tensor(self, tensor: Tensor) -> None:
        """Begins to send hidden states, and returns at once."""
        tensor = (tensor.detach().cpu() if self._on_cpu else tensor.detach()).contiguous()
        with self._together():
            self._sent.append((dist.isend(tensor, self.peer), tensor))

    def receive_tensor(self, like: Tensor, shape: Sequence[int]) -> Callable[[], Tensor]:
        """Begins to receive hidden states of a shape, with the device and type of `like`; to be called to have them."""
        found = torch.empty(shape, dtype=like.dtype, device="cpu" if self._on_cpu else like.device)
        with self._together():
            work: Any = dist.irecv(found, self.peer)

        def wait() -> Tensor:
            with self._together():
                work.wait()
                while self._sent:  # what was sent before an answer came has arrived
                    self._sent.pop()[0].wait()
            return found.to(like.device)

        return wait

    @contextmanager
    def _together(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            raise LostRank(
                f"Process {self.peer} must take part in every pass, but is gone ({str(error).splitlines()[0]}).",
                "Look at what it said.",
                rank=self.peer,
            ) from error


def packed(value: Any, tensors: list[Tensor]) -> Any:
    """What a layer is given, as JSON; its tensors go into the list. Raises TypeError for anything else."""
    if isinstance(value, Tensor):
        tensors.append(value)
        return {"tensor": len(tensors) - 1}
    if isinstance(value, tuple | list):
        return {"row": [packed(one, tensors) for one in value]}
    if isinstance(value, dict):
        return {"named": {name: packed(one, tensors) for name, one in value.items()}}
    if value is None or isinstance(value, bool | int | float | str):
        return {"plain": value}
    raise TypeError(f"A layer was given a {type(value).__name__}, which cannot be sent.")


def unpacked(value: Any, tensors: Sequence[Tensor]) -> Any:
    """What was packed; rows come back as tuples."""
    ((kind, inside),) = value.items()
    if kind == "tensor":
        return tensors[inside]
    if kind == "row":
        return tuple(unpacked(one, tensors) for one in inside)
    if kind == "named":
        return {name: unpacked(one, tensors) for name, one in inside.items()}
    return inside
