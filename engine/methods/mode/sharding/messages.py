"""Messages between the backbone's process and one with experts: commands, and hidden states.

Commands are JSON with tensors. They go over gloo with a very long timeout, since the backbone may pause between two
passes. Hidden states go over the process group's own backend, and both sides know their shapes. Nothing is pickled.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load, save
from torch import Tensor
from transformers import Cache

from engine.errors import LostRankError

_PATIENCE = timedelta(days=7)


def control_group() -> Any:
    """The process group for commands. Every process must create it at the same point."""
    return dist.new_group(backend="gloo", timeout=_PATIENCE)


class Peer:
    """The connection to another process. Raises LostRankError if that process is gone."""

    def __init__(self, peer: int, group: Any) -> None:
        self.peer, self._group = peer, group
        self._on_cpu = dist.get_backend() == "gloo"
        self._sent: list[tuple[Any, Tensor]] = []  # a tensor must live until it has arrived

    def send(self, do: str, tensors: Sequence[Tensor] = (), **fields: Any) -> None:
        """Sends a command with fields and tensors, and waits for its delivery."""
        words = json.dumps({"do": do, **fields}).encode()
        named = {
            f"{n}": one.detach().cpu().clone(memory_format=torch.contiguous_format) for n, one in enumerate(tensors)
        }
        parcel = bytearray(words + save(named))
        with self._together():
            dist.send(torch.tensor([len(words), len(parcel)]), self.peer, group=self._group)
            dist.send(torch.frombuffer(parcel, dtype=torch.uint8), self.peer, group=self._group)

    def receive(self) -> dict[str, Any]:
        """Waits for a command. Returns its fields, with `tensors` if it has any."""
        sizes = torch.empty(2, dtype=torch.long)
        with self._together():
            dist.recv(sizes, self.peer, group=self._group)
            parcel = torch.empty(int(sizes[1]), dtype=torch.uint8)
            dist.recv(parcel, self.peer, group=self._group)
        text = parcel.numpy().tobytes()
        message: dict[str, Any] = json.loads(text[: int(sizes[0])])
        tensors = load(text[int(sizes[0]) :])
        return message | ({"tensors": [tensors[f"{number}"] for number in range(len(tensors))]} if tensors else {})

    def send_tensor(self, tensor: Tensor) -> None:
        """Starts to send hidden states without waiting."""
        tensor = (tensor.detach().cpu() if self._on_cpu else tensor.detach()).contiguous()
        with self._together():
            self._sent.append((dist.isend(tensor, self.peer), tensor))

    def receive_tensor(self, like: Tensor, shape: Sequence[int]) -> Callable[[], Tensor]:
        """Starts to receive hidden states of a shape, device and type as `like`; call the result to wait for them."""
        buffer = torch.empty(shape, dtype=like.dtype, device="cpu" if self._on_cpu else like.device)
        with self._together():
            work: Any = dist.irecv(buffer, self.peer)

        def wait() -> Tensor:
            with self._together():
                work.wait()
                while self._sent:  # what was sent before an answer came has arrived
                    self._sent.pop()[0].wait()
            return buffer.to(like.device)

        return wait

    @contextmanager
    def _together(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            raise LostRankError(
                f"Process {self.peer} is gone ({str(error).splitlines()[0]}).",
                "See that process's log.",
                rank=self.peer,
            ) from error


def pack(value: Any, tensors: list[Tensor], number_of: Callable[[Cache], int]) -> Any:
    """A layer's arguments as JSON; their tensors are appended to the list, and a cache is a number.

    Raises TypeError for other values.
    """
    if isinstance(value, Tensor):
        tensors.append(value)
        return {"tensor": len(tensors) - 1}
    if isinstance(value, tuple | list):
        return {"row": [pack(one, tensors, number_of) for one in value]}
    if isinstance(value, dict):
        return {"named": {name: pack(one, tensors, number_of) for name, one in value.items()}}
    if value is None or isinstance(value, bool | int | float | str):
        return {"plain": value}
    if isinstance(value, Cache):
        return {"cache": number_of(value)}
    raise TypeError(f"A layer was given a {type(value).__name__}, which cannot be sent.")


def unpack(value: Any, tensors: Sequence[Tensor], caches: Mapping[int, Cache]) -> Any:
    """The inverse of `pack`; lists come back as tuples, and a number of a cache as this process's own."""
    ((kind, inside),) = value.items()
    if kind == "tensor":
        return tensors[inside]
    if kind == "cache":
        return caches[inside]
    if kind == "row":
        return tuple(unpack(one, tensors, caches) for one in inside)
    if kind == "named":
        return {name: unpack(one, tensors, caches) for name, one in inside.items()}
    return inside
