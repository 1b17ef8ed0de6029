"""One process of a training of MoDE: `torchrun --nproc-per-node 3 -m engine.methods.mode.sharding.worker TASK`.

TASK is as in `engine/training/ipc.py`, with a `ModeTask`. The first process has the backbone and never a tensor of
an expert; each other one writes what its own experts have learnt.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from engine.training.ipc import drive, main, own_device, process_group

if TYPE_CHECKING:
    import torch

    from engine.methods.mode.sharding.launch import ModeTask
    from engine.training.ipc import ParentConnection


def _work(path: Path, rank: int, num_ranks: int, parent: ParentConnection | None) -> None:
    from engine.methods.mode.sharding.launch import ModeTask
    from engine.training.ipc import INPUT, STORE

    task = ModeTask.read(path / INPUT if parent else path)
    device = own_device(task.device)
    with process_group(device, rank, num_ranks, path / STORE if parent else None):
        if rank == 0:
            _lead(task, device, parent)
        else:
            _serve(task, device, task.keys_of(rank, num_ranks))


def _lead(task: ModeTask, device: torch.device, parent: ParentConnection | None) -> None:
    """Runs the backbone's process: text, losses and the loop."""
    from engine.methods.mode.sharding.backbone import ShardedProcessGroup, connect_experts
    from engine.methods.parts.training import train_active
    from engine.training.distributed import SINGLE_PROCESS

    model = task.backbone().to(device)
    with connect_experts(model, str(task.part_set.base.sha256)) as shards:
        active = task.part_set.of(model)
        team = ShardedProcessGroup(shards, active, task.data.config)
        drive(train_active(active, task.data, task.folder, in_turn=True, team=team), SINGLE_PROCESS, parent)


def _serve(task: ModeTask, device: torch.device, keys: tuple[str, ...]) -> None:
    """Runs a process with experts."""
    from engine.methods.mode.sharding.experts import serve
    from engine.methods.mode.sharding.folders import save_trained

    model = task.backbone()  # new experts are copies of its layers
    for _ in task.part_set.add_to(model, keys):
        pass
    model.free_backbone()
    for key in keys:
        model.place_expert(key, device)
    if serve(model, str(task.part_set.base.sha256), task.folder):
        for key in keys:
            save_trained(model, key, task.folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), _work)
