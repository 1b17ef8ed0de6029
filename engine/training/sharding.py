"""Sharding a training over its processes by FSDP2: shared parameters over all, an expert's over its group (DEMix §3.4).

Each process keeps a part of every parameter, of its gradient and of its optimizer state; a layer is whole only while it
is computed. An expert that only one process holds stays whole there. Checkpoints are whole, so a training resumes on
any number of processes, sharded or not.

Shapes: B rows, T positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import wraps
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method

from engine.config import TrainingConfig
from engine.errors import TrainingError
from engine.models.expert_model import TrainableModel, trainable
from engine.models.families import layout_of
from engine.models.likelihoods import TokenScores
from engine.models.multi_expert import MultiExpertModel
from engine.models.rows import Rows
from engine.training.distributed import Layout, RankGroup
from engine.training.optimizer import hold_in_training_precision

_FORWARD_METHODS = ("losses", "token_scores")


class ShardedGroup(RankGroup):
    """One of several processes that hold a part of each parameter; FSDP2 sums gradients in the backward pass."""

    def __init__(self, layout: Layout, rank: int, device: torch.device) -> None:
        """Needs an initialised process group of the layout's size."""
        super().__init__(layout, rank)
        self._device = device

    def shard(self, model: TrainableModel, config: TrainingConfig, only_experts: Sequence[str] | None) -> None:
        """Shards a model that holds the experts of this process, in place, and moves it to the device.

        Raises TrainingError for a model of another class, which a plug-in may build.
        """
        if not isinstance(model, MultiExpertModel):
            raise TrainingError("A model of this method cannot be divided among processes.", "Train without shard.")
        trained = trainable(model, only_experts)
        hold_in_training_precision(model, trained.values(), config.precision, self._device)
        unsharded: set[nn.Parameter] = set()
        for key in model.keys:
            group = self._groups.get(key)
            if group is None:  # only this process has the expert
                unsharded |= set(model.expert_parameters(key).values())
                continue
            mesh = self._mesh(group)
            for modules in _expert_modules(model, key):
                fully_shard(modules, mesh=mesh)
        everywhere = self._mesh(dist.group.WORLD)
        for layer in model.lm.get_submodule(layout_of(model.lm).layers).children():
            fully_shard(layer, mesh=everywhere, ignored_params=unsharded)
        fully_shard(model, mesh=everywhere, ignored_params=unsharded, reshard_after_forward=False)
        for method in _FORWARD_METHODS:
            register_fsdp_forward_method(model, method)
        _reshard_after_scoring(model)
        for module in model.modules():
            if isinstance(module, FSDPModule):  # sums, not means: losses are divided by the tokens of all processes
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)
        model.to(self._device)  # what is not sharded

    def _mesh(self, group: Any) -> DeviceMesh:
        return DeviceMesh.from_group(group, self._device.type)

    def owns_norm(self, key: str | None) -> bool:
        """True: every process counts its parts, which no other has."""
        del key
        return True

    def sum_gradients(self, key: str | None, gradients: Sequence[Tensor]) -> None:
        """Nothing: the backward pass has done it."""

    def join_forward(self, model: Any, num_positions: int) -> None:
        ids_1T = torch.zeros(1, num_positions, dtype=torch.long, device=self._device)
        model.token_scores(ids_1T, ids_1T, Rows.all_to(model.keys[0], 1))


def _reshard_after_scoring(model: Any) -> None:
    """Frees whole parameters after a pass without gradients; after others, the backward pass does it."""
    score = model.token_scores

    @wraps(score)
    def score_and_reshard(*args: Any, **options: Any) -> TokenScores:
        scores: TokenScores = score(*args, **options)
        model.reshard()
        return scores

    model.token_scores = score_and_reshard


def _expert_modules(model: MultiExpertModel, key: str) -> Iterator[list[nn.Module]]:
    """The modules of an expert, a list for each layer of the decoder and one for what lies elsewhere."""
    layers, by_layer = layout_of(model.lm).layers, dict[str, list[nn.Module]]()
    for path, module in model.own_modules(key):
        inside = path.removeprefix(f"{layers}.") if path.startswith(f"{layers}.") else ""
        by_layer.setdefault(inside.partition(".")[0], []).append(module)
    return iter(by_layer.values())
