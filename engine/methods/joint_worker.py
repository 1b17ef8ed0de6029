"""One process of a joint training: `torchrun --nproc-per-node 4 -m engine.methods.joint_worker TASK`.

TASK is a file that a `JointTask` was written to; then events are printed as lines of JSON. Or it is a folder that
`train_distributed` made, with such a file and the way to the caller. torchrun's variables say which process this is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from engine.training.ipc import drive, main, own_device, process_group

if TYPE_CHECKING:
    import torch

    from engine.events import Event
    from engine.methods.joint_training import JointTask
    from engine.training.distributed import ProcessGroup
    from engine.training.ipc import ParentConnection


def _work(path: Path, rank: int, num_ranks: int, parent: ParentConnection | None) -> None:
    from engine.methods.joint_training import JointTask
    from engine.training.distributed import layout_of
    from engine.training.ipc import INPUT, STORE

    task = JointTask.read(path / INPUT if parent else path)
    layout = layout_of(task.domains, task.config.sequences_per_domain, num_ranks)
    device = own_device(task.device)
    with process_group(device, rank, num_ranks, path / STORE if parent else None):
        from engine.training.distributed import RankGroup
        from engine.training.sharding import ShardedGroup

        team = ShardedGroup(layout, rank, device) if task.config.shard else RankGroup(layout, rank)
        drive(_training(task, team, device), team, parent)


def _training(task: JointTask, team: ProcessGroup, device: torch.device) -> Iterator[Event]:
    """The events of a training whose model, in this process, holds only the experts of this process."""
    from engine.methods.joint_training import start_experts
    from engine.models.expert_model import require_context
    from engine.training.loop import train
    from engine.training.memory import require_memory_to_build
    from engine.training.sharding import ShardedGroup

    texts = [domain.open() for domain in task.domains]
    keys = list(dict.fromkeys(text.expert for text in texts if team.has_expert(text.expert)))
    method = task.recipe.descriptor
    learns = task.recipe.learns(keys)
    build = partial(method.build, task.seed_folder, keys, task.recipe.config, task.config.seed)
    require_memory_to_build(build, task.seed_folder, learns, task.config, device)
    model = build()
    require_context(model, task.config.block_size)
    if not isinstance(team, ShardedGroup):
        model = model.to(device)
    for _ in start_experts(model, texts, task.config, task.folder):
        pass  # processes have different numbers of experts, and a team's events are one for all
    if isinstance(team, ShardedGroup):
        team.shard(model, task.config, learns)
    return train(
        model,
        texts,
        task.config,
        task.folder,
        only_experts=learns,
        balanced=method.balanced,
        team=team,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), _work)
