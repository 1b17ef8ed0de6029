"""A backbone's process and those with experts, forked from a process that has imported everything already."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.methods.mode.config import ModeConfig
from engine.methods.mode.model import ModeModel
from engine.methods.mode.sharding.backbone import Shard, connect_experts
from engine.methods.mode.sharding.experts import serve
from tests.engine.methods.mode.backbones import SHAPE, backbone, dropping, mode_model

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        "torch",
        "tests.engine.methods.mode.backbones",
        "engine.training.loop",
        "engine.methods.mode.sharding.backbone",
    ]
)
_SECONDS = 60
BACKBONE = "its hash"
Work = Callable[[ModeModel, list[Shard], Any], dict[str, Tensor]]


@dataclass(frozen=True)
class Plan:
    """Experts by process (the first has none), and what the first one does with them; tensors go into `folder`."""

    work: Work
    folder: Path
    held: Sequence[Sequence[str]]
    requested: Any = None
    family: str = "llama"
    config: ModeConfig = SHAPE
    another: int | None = None  # a process whose experts are of another backbone
    dropout: float = 0.0
    in_one_folder: Path | None = None  # all checkpoints; otherwise each process has a folder of its own
    dies: int | None = None  # a process with experts that ends without a word in its second block

    def file(self, rank: int) -> Path:
        return self.folder / f"rank-{rank}.safetensors"


@dataclass
class Shown:
    """Each process's tensors and error."""

    tensors: list[dict[str, Tensor]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def experts(self) -> dict[str, Tensor]:
        return {name: one for tensors in self.tensors[1:] for name, one in tensors.items()}


def together(plan: Plan) -> Shown:
    """Runs the plan; a process that ended without a word has the error “gone”."""
    plan.folder.mkdir(exist_ok=True)
    (store := plan.folder / "store").unlink(missing_ok=True)
    ends = [_FORKS.Pipe(duplex=False) for _ in range(len(plan.held) + 1)]
    processes = [_FORKS.Process(target=_rank, args=(rank, store, plan, ends[rank][1])) for rank in range(len(ends))]
    for process, (_, write) in zip(processes, ends, strict=True):
        process.start()
        write.close()
    errors = [_heard(read) for read, _ in ends]
    for process in processes:
        process.join(_SECONDS)
    return Shown([load_file(plan.file(n)) if plan.file(n).exists() else {} for n in range(len(ends))], errors)


def _heard(read: Any) -> str:
    if not read.poll(_SECONDS):
        return "hangs"
    try:
        return str(read.recv())
    except EOFError:
        return "gone"


def _rank(rank: int, store: Path, plan: Plan, end: Any) -> None:
    torch.set_num_threads(1)
    size = len(plan.held) + 1
    dist.init_process_group("gloo", store=dist.FileStore(str(store), size), rank=rank, world_size=size)
    try:
        save_file(_first(plan) if rank == 0 else _other(rank, plan), plan.file(rank))
        end.send("")
    except Exception as error:
        end.send(f"{type(error).__name__}: {error}")
    end.close()
    os._exit(0)


def _first(plan: Plan) -> dict[str, Tensor]:
    model = dropping(ModeModel(backbone(plan.family), plan.config.num_blocks).eval(), plan.dropout)
    with connect_experts(model, BACKBONE) as shards:
        result = plan.work(model, shards, plan.requested)
    return {name: tensor.detach().contiguous() for name, tensor in result.items()}


def _other(rank: int, plan: Plan) -> dict[str, Tensor]:
    keys = plan.held[rank - 1]
    model = dropping(mode_model(keys, plan.family, plan.config), plan.dropout)
    model.free_backbone()
    if plan.dies == rank:
        model.branches(keys[0])[1].register_forward_pre_hook(lambda *_: os._exit(1))
    serve(model, "another" if plan.another == rank else BACKBONE, plan.in_one_folder or plan.folder / f"own-{rank}")
    return seen(model)


def seen(model: ModeModel) -> dict[str, Tensor]:
    """All experts' tensors and their gradients, by expert."""
    named = {name: one for key in model.keys for name, one in model.expert_parameters(key).items()}
    gradients = {f"gradient {name}": one.grad for name, one in named.items() if one.grad is not None}
    return {name: one.detach().contiguous() for name, one in named.items()} | gradients
