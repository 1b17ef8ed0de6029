"""A process with experts in MPMD (§3.3): only it holds their weights, gradients and moments.

The backbone's process controls it: it computes its experts' layers while the backbone's are computed there, runs their
backward pass, and updates them by the same rule, clipped over the gradients of all processes. It sends hidden states,
their gradients, the linear parts of the gates' logits, the odds, and one number for the clip.

Shapes: as in `engine/methods/mode/sharding/backbone.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from transformers import DynamicCache

from engine.config import TrainingConfig
from engine.errors import TrainingError
from engine.methods.mode.block import Branch
from engine.methods.mode.model import ModeModel
from engine.methods.mode.sharding.folders import expert_folder
from engine.methods.mode.sharding.messages import Peer, control_group, unpack
from engine.methods.parts.method import Learning
from engine.training.checkpoint import (
    best_weights,
    drop_after,
    drop_cut_off,
    has_checkpoint,
    restore,
    save_checkpoint,
    training_state,
)
from engine.training.data import step_seed
from engine.training.distributed import ProcessGroup
from engine.training.optimizer import GradientGroup, clip_and_step, in_training_precision, make_optimizer


def serve(model: ModeModel, base_sha256: str, folder: Path | None = None) -> bool:
    """Serves this model's experts to the first process until that ends. Returns whether a training finished.

    The model's own backbone is not used, and may be freed; its hash identifies the backbone of the experts. Each
    expert's checkpoints go into its own folder in `folder`, which may also hold a checkpoint of all experts from a
    single process. Afterwards the model's experts are trained; after a finished training they have the weights that
    early stopping chose. Raises LostRankError if the first process is gone, and what an update raises.
    """
    wire = Peer(0, control_group())
    shapes = {key: asdict(model.shape_of(key)) for key in model.keys}
    wire.send("meet", base_sha256=base_sha256, experts=shapes)
    server = _ExpertServer(model, wire, folder)
    while (command := (message := wire.receive()).pop("do")) != "end":
        server.handlers[command](**message)
    return server.training is not None and server.training.has_ended


class _ExpertServer:
    def __init__(self, model: ModeModel, wire: Peer, folder: Path | None) -> None:
        self.model, self.wire, self.folder = model, wire, folder
        self.training: _ShardedTraining | None = None
        self.passed: list[tuple[Tensor, Tensor]] = []  # each block's input and outputs, for the backward pass
        self.caches: defaultdict[int, DynamicCache] = defaultdict(DynamicCache)  # by the first process's number
        self.handlers: dict[str, Callable[..., None]] = {"read": self.read, "back": self.back, "learn": self.learn}

    def read(
        self,
        tensors: Sequence[Tensor],
        keys: Sequence[str],
        shape: Sequence[int],
        given: Any,
        named: Any,
        forget: Sequence[int],
        training: bool,
        learning: bool,
        bf16: bool,
    ) -> None:
        """Runs one forward pass."""
        rows = [self.model.branches(key) for key in keys]
        device = rows[0][0].slope.device
        like, *_ = tensors = [tensor.to(device) for tensor in tensors]
        for number in forget:
            self.caches.pop(number, None)
        given, named = (unpack(one, tensors, self.caches) for one in (given, named))
        self.passed = []
        with torch.set_grad_enabled(learning):
            for number, branches in enumerate(zip(*rows, strict=True)):
                x_BTD = self.wire.receive_tensor(like, shape)().requires_grad_(learning and number > 0)
                with torch.autocast(device.type, torch.bfloat16) if bf16 else nullcontext():
                    answers = [_answer(one.train(training), x_BTD, given, named) for one in branches]
                answers_SBTD = torch.stack(answers).to(like.dtype)
                self.wire.send_tensor(answers_SBTD)
                if learning:
                    self.passed.append((x_BTD, answers_SBTD))

    def back(self) -> None:
        """The backward pass of the newest forward pass."""
        for x_BTD, answers_SBTD in reversed(self.passed):
            gradients_SBTD = self.wire.receive_tensor(answers_SBTD, answers_SBTD.shape)()
            if answers_SBTD.requires_grad:
                answers_SBTD.backward(gradients_SBTD)
            if x_BTD.requires_grad:
                assert x_BTD.grad is not None
                self.wire.send_tensor(x_BTD.grad)
        self.passed = []

    def learn(self, keys: Sequence[str], learning: Learning, config: dict[str, Any]) -> None:
        """Starts a training."""
        if self.folder is None:
            raise TrainingError("Training an expert needs a folder for its checkpoints.", "Give one.")
        training = self.training = _ShardedTraining(
            self.model, keys, learning, TrainingConfig(**config), self.folder, self.wire
        )
        self.handlers |= {
            "resume": training.resume,
            "update": training.update,
            "best": training.keep_best,
            "save": training.save,
            "finish": training.restore_best,
        }


def _answer(branch: Branch, x_BTD: Tensor, args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    out_BTD, slope_BT, odds = branch.begin(x_BTD, *args, **kwargs)()
    return torch.cat([out_BTD, slope_BT[..., None], odds.expand(*slope_BT.shape, 1)], -1)


class _ShardedTraining:
    """This process's part of a training: the updates of its own experts."""

    def __init__(
        self,
        model: ModeModel,
        keys: Sequence[str],
        learning: Learning,
        config: TrainingConfig,
        folder: Path,
        wire: Peer,
    ) -> None:
        self.config, self.folder, self.wire, self.step = config, folder, wire, 0
        self.has_ended = False
        of = model.expert_parameters if learning == "experts" else model.gate_parameters
        self.of_each: dict[str, dict[str, nn.Parameter]] = {key: of(key) for key in keys}
        self.parameters = {name: one for of_one in self.of_each.values() for name, one in of_one.items()}
        self.best: dict[str, Tensor] = {}  # weights of the best evaluation so far, with patience
        model.requires_grad_(False)
        for parameter in self.parameters.values():
            parameter.requires_grad_(True)
        self._precision = ExitStack()
        self._precision.enter_context(
            in_training_precision(model, self.parameters.values(), config.precision, model.device)
        )
        self.optimizer = make_optimizer(self.parameters, config)

    def resume(self, step: int) -> None:
        """Resumes from the first process's step and drops later checkpoints, which that process lacks."""
        self.step = step
        for key, parameters in self.of_each.items() if step else ():
            root = self._checkpoint_of(key, step)
            restore(root, step, parameters, self.optimizer)
            self.best |= best_weights(root, step, parameters)
        for key in self.of_each:
            root = expert_folder(self.folder, key)
            drop_cut_off(root)
            drop_after(root, step)
        self._begin_step()

    def _checkpoint_of(self, key: str, step: int) -> Path:
        """The folder of an expert's checkpoint: its own, or that of all experts."""
        for root in (expert_folder(self.folder, key), self.folder):
            if has_checkpoint(root, step, self.config, self.of_each[key]):
                return root
        raise TrainingError(
            f"{self.folder} has no checkpoint of the expert “{key}” at step {step}, where the first process resumes.",
            "Restore it, or start the training again.",
        )

    def update(self) -> None:
        groups = [GradientGroup(list(self.parameters.values()))]
        clip_and_step(self.optimizer, groups, self.step, self.config, _Member(self.wire))
        self.step += 1
        self._begin_step()

    def _begin_step(self) -> None:
        """Seeds the random generator by the step, so that a resumed training equals an uninterrupted one.

        Experts that are all in one process draw the same as next to the backbone, which draws nothing.
        """
        torch.manual_seed(step_seed(self.config.seed, self.step) + dist.get_rank() - 1)

    def keep_best(self) -> None:
        self.best = {name: one.detach().to("cpu", copy=True) for name, one in self.parameters.items()}

    def save(self) -> None:
        for key, parameters in self.of_each.items():
            best = {name: self.best[name] for name in parameters if name in self.best}
            state = training_state(parameters, self.optimizer, best)
            save_checkpoint(expert_folder(self.folder, key), self.step, state, self.config)
        self.wire.send("saved")

    @torch.no_grad()
    def restore_best(self) -> None:
        for name, tensor in self.best.items():
            self.parameters[name].copy_(tensor)
        self._precision.close()
        self.has_ended = True


class _Member(ProcessGroup):
    """This process as a member of the process group: the gradients of all processes are clipped together."""

    def __init__(self, wire: Peer) -> None:
        self.wire = wire

    def all_sum(self, value: float) -> float:
        self.wire.send("sum", value=value)
        return float(self.wire.receive()["value"])
