"""The backbone's process in MPMD (§3.3): experts of other processes stand in its blocks by branches without weights.

At each block its input goes out, once to every process; the backbone's layers are computed; then the experts' answers,
which were expected all the while, are merged. The backward pass is the mirror: the answers' gradients go out, the
backbone's layers are gone through, and then what the experts say of the input's gradient is added. Autograd keeps that
order, since it takes first what was made last: an answer's node is made after the backbone's layers, an input's before.

A text that is read on from a cache has one here for the backbone, and one in each other process for the experts there:
their keys and values never leave it.

Shapes: B rows, T positions, D width, S active experts of one process. Answers [S, B, T, D + 2] have an expert's output,
the linear part of its logit, and its odds, the same at each token.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary, finalize

import torch
import torch.distributed as dist
from torch import Tensor, nn
from transformers import Cache

from engine.config import TrainingConfig
from engine.errors import ModelError, TrainingError
from engine.methods.mode.block import BranchOutput, active_keys
from engine.methods.mode.config import ModeConfig
from engine.methods.mode.model import ModeModel
from engine.methods.mode.sharding.messages import Peer, control_group, pack
from engine.methods.parts.parts_model import ActiveParts
from engine.training.distributed import ProcessGroup


class _Caches:
    """The caches of this process, by number; the experts' process has its own of the same texts under these."""

    def __init__(self) -> None:
        self._numbers: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._num_read: WeakKeyDictionary[Any, dict[str, int]] = WeakKeyDictionary()  # tokens, by expert
        self._next, self._gone = count(), deque[int]()

    def number(self, cache: Any) -> int:
        """The number of a cache, a new one for a new text."""
        if cache not in self._numbers:
            self._numbers[cache] = next(self._next)
            finalize(cache, self._gone.append, self._numbers[cache]).atexit = False
        return self._numbers[cache]

    def num_read(self, cache: Any, key: str) -> int:
        """How many tokens of its text an expert has read."""
        return self._num_read.get(cache, {}).get(key, 0)

    def add(self, cache: Any, keys: Sequence[str], num_tokens: int) -> None:
        """Notes that these experts have read more tokens of its text."""
        counts = self._num_read.setdefault(cache, {})
        counts |= {key: counts.get(key, 0) + num_tokens for key in keys}

    def forgotten(self) -> list[int]:
        """The numbers of caches that are gone since the last call."""
        return [self._gone.popleft() for _ in range(len(self._gone))]


class Shard:
    """The experts of another process."""

    def __init__(self, wire: Peer, keys: Sequence[str]) -> None:
        self.wire, self.keys = wire, tuple(keys)
        self.num_passes = 0
        self._caches = _Caches()
        self._active: list[str] = []
        self._ticket: Tensor | None = None  # of the block that is under way
        self._answers_SBTD: Tensor | None = None
        self._expected: Callable[[], Tensor] | None = None

    def begin(self, branch: RemoteBranch, x_BTD: Tensor, given: Any, named: Any) -> None:
        """Sends a block's input, unless it was sent already for another expert of the same process."""
        if self._ticket is None:
            if branch.number == 0:
                self._open(x_BTD, given, named, training=branch.training)
            cache = next((one for one in (*given, *named.values()) if isinstance(one, Cache)), None)
            if cache is not None and branch.number == 0:
                self._caches.add(cache, self._active, x_BTD.shape[1])
            ticket = torch.zeros((), device=x_BTD.device, requires_grad=True)  # the first block's input has no gradient
            self._ticket = _Depart.apply(ticket, x_BTD, self)  # type: ignore[no-untyped-call]

    def end(self, branch: RemoteBranch) -> BranchOutput:
        """The output of one of the experts."""
        if self._answers_SBTD is None:
            self._answers_SBTD = _Arrive.apply(self._ticket, self, branch)  # type: ignore[no-untyped-call]
        which = self._active.index(branch.key)
        answer_BTD = self._answers_SBTD[which]
        if which == len(self._active) - 1:
            self._ticket = self._answers_SBTD = None
        return answer_BTD[..., :-2], answer_BTD[..., -2], answer_BTD[:1, 0, -1]

    def num_read(self, cache: Any, key: str) -> int:
        """How many tokens of the text of a cache an expert has read."""
        return self._caches.num_read(cache, key)

    def _open(self, x_BTD: Tensor, given: Any, named: Any, *, training: bool) -> None:
        """Starts a pass. Layers get the same arguments in every block, so they are sent once."""
        self.num_passes += 1
        self._active = [key for key in active_keys() if key in self.keys]
        tensors: list[Tensor] = [x_BTD[:0]]
        kind = x_BTD.device.type
        number = self._caches.number
        self.wire.send(
            "read",
            tensors,
            keys=self._active,
            shape=list(x_BTD.shape),
            given=pack(given, tensors, number),
            named=pack(named, tensors, number),
            forget=self._caches.forgotten(),
            training=training,
            learning=torch.is_grad_enabled(),
            bf16=torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) == torch.bfloat16,
        )

    def depart(self, x_BTD: Tensor) -> None:
        """Sends a block's input and starts to receive the outputs."""
        rows, length, width = x_BTD.shape
        self.wire.send_tensor(x_BTD)
        self._expected = self.wire.receive_tensor(x_BTD, (len(self._active), rows, length, width + 2))

    def return_(self, gradients_SBTD: Tensor, branch: RemoteBranch) -> None:
        """Sends the outputs' gradients and starts to receive the input's; the first block's input has none."""
        if branch.is_last:
            self.wire.send("back")
        self.wire.send_tensor(gradients_SBTD)
        if branch.number:
            _, rows, length, width = gradients_SBTD.shape
            self._expected = self.wire.receive_tensor(gradients_SBTD, (rows, length, width - 2))

    def wait_for_tensor(self) -> Tensor:
        assert self._expected is not None
        return self._expected()


class _Depart(torch.autograd.Function):
    """Sends a block's input; receives its gradient. The returned ticket only orders it before `_Arrive`."""

    @staticmethod
    def forward(ctx: Any, ticket: Tensor, x_BTD: Tensor, shard: Shard) -> Tensor:
        ctx.shard = shard
        shard.depart(x_BTD)
        return ticket.clone()

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Any:
        return None, ctx.shard.wait_for_tensor() if ctx.needs_input_grad[1] else None, None


class _Arrive(torch.autograd.Function):
    """Receives the experts' outputs; sends their gradients."""

    @staticmethod
    def forward(ctx: Any, _: Tensor, shard: Shard, branch: RemoteBranch) -> Tensor:
        ctx.shard, ctx.branch, ctx.num_pass = shard, branch, shard.num_passes
        return shard.wait_for_tensor()

    @staticmethod
    def backward(ctx: Any, gradients_SBTD: Tensor) -> Any:
        if ctx.num_pass != ctx.shard.num_passes:
            raise TrainingError(
                "An expert's process has started another pass before the gradients of this one were computed.",
                "Call backward after each pass.",
            )
        ctx.shard.return_(gradients_SBTD, ctx.branch)
        return torch.zeros((), device=gradients_SBTD.device), None, None


class RemoteBranch(nn.Module):
    """The stand-in for an expert of another process in a block; has no tensors."""

    def __init__(self, shard: Shard, key: str, number: int, num_blocks: int) -> None:
        super().__init__()
        self._shard, self.key, self.number, self.is_last = shard, key, number, number == num_blocks - 1

    def begin(self, x_BTD: Tensor, *args: Any, **kwargs: Any) -> Callable[[], BranchOutput]:
        """Same as `Branch.begin`, computed in the other process."""
        self._shard.begin(self, x_BTD, args, kwargs)
        return lambda: self._shard.end(self)

    def places(self, num_layers: int) -> range:
        """None in a cache of this process: the expert's keys and values are in the other."""
        del num_layers
        return range(0)

    def num_read(self, cache: Any) -> int:
        """Same as `Branch.num_read`."""
        return self._shard.num_read(cache, self.key)


@contextmanager
def connect_experts(model: ModeModel, base_sha256: str) -> Iterator[list[Shard]]:
    """Adds the experts of all other processes, which must run `serve`, to the first process's model.

    On success it ends those processes' service; after an error this process must end, and theirs raise LostRankError.
    Raises ModelError where an expert is of another backbone or does not fit.
    """
    group = control_group()
    shards = [_connect(Peer(rank, group), model, base_sha256) for rank in range(1, dist.get_world_size())]
    yield shards
    for shard in shards:
        shard.wire.send("end")


def _connect(wire: Peer, model: ModeModel, base_sha256: str) -> Shard:
    message = wire.receive()
    if message["base_sha256"] != base_sha256:
        raise ModelError(
            f"The experts of process {wire.peer} were trained on another backbone than the first process has.",
            "Use experts with the backbone they were trained on.",
        )
    shard = Shard(wire, list(message["experts"]))
    for key, shape in message["experts"].items():
        branches = {f"blocks.{n}": RemoteBranch(shard, key, n, model.num_blocks) for n in range(model.num_blocks)}
        model.put_expert(key, ModeConfig(**shape), branches)
    return shard


class ShardedProcessGroup(ProcessGroup):
    """For `train(active, …, team=ShardedProcessGroup(shards, active, config))`. One object serves one training.

    The loop runs in the first process, which has the text and the backbone, and no trained parameter. The others make
    their updates when it clips and their checkpoints when it makes its own, and keep their best weights at its command:
    early stopping depends on held-out losses, which only it knows.
    """

    def __init__(self, shards: Sequence[Shard], active: ActiveParts, config: TrainingConfig) -> None:
        self.shards = [shard for shard in shards if set(shard.keys) & set(active.active)]
        for shard in self.shards:
            keys = [key for key in active.active if key in shard.keys]
            shard.wire.send("learn", keys=keys, learning=active.learning, config=asdict(config))

    def step(self) -> None:
        """Updates the experts too; each of their processes joins the next `all_sum`."""
        self._send("update")

    def all_sum(self, value: float) -> float:
        total = math.fsum([value, *(float(shard.wire.receive()["value"]) for shard in self.shards)])
        self._send("sum", value=total)
        return total

    def save_others(self) -> None:
        """Saves the experts' states in their own processes; returns when all are saved."""
        self._send("save")
        for shard in self.shards:
            shard.wire.receive()

    def on_resume(self, step: int) -> None:
        self._send("resume", step=step)

    def on_best(self) -> None:
        self._send("best")

    def finish(self) -> None:
        """Restores the experts' best weights, with early stopping."""
        self._send("finish")

    def _send(self, do: str, **fields: Any) -> None:
        for shard in self.shards:
            shard.wire.send(do, **fields)
