"""A process with experts in MPMD (§3.3): it has their weights, gradients and moments, and nobody else does.

It does what the backbone's process says: computes its experts' layers while the backbone's are computed there, goes
back through them, and updates them by the same rule and the same clip over everybody's gradients. What leaves it are
hidden states, their gradients, the linear parts of the gates' logits, the odds, and one number for the clip.

Shapes: as in `engine/methods/mode/sharding/backbone.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from engine.config import TrainingConfig
from engine.errors import TrainingError
from engine.methods.mode.block import Branch
from engine.methods.mode.flops import Learning
from engine.methods.mode.model import ModeModel
from engine.methods.mode.sharding.folders import expert_folder
from engine.methods.mode.sharding.messages import Peer, control_group, unpacked
from engine.training.checkpoint import (
    best_weights,
    drop_after,
    has_checkpoint,
    restore,
    save_checkpoint,
    training_state,
)
from engine.training.distributed import ProcessGroup
from engine.training.optimizer import GradientGroup, clip_and_step, make_optimizer
from engine.training.step_seed import step_seed


def serve(model: ModeModel, base_sha256: str, folder: Path | None = None) -> bool:
    """Lets the first process use the experts of this model until it says that it is done; whether a training ended.

    The model's own backbone is not used, and may be forgotten; its hash says which one the experts belong to.
    Checkpoints of what each expert learns go into a folder of its own in `folder`, where a checkpoint of all may lie,
    too, that one process made. Afterwards the model's experts are what they learnt; those of a training that ended
    (was not stopped) are as patience says. Raises LostRank when the first process is gone, and what an update raises.
    """
    wire = Peer(0, control_group())
    shapes = {key: asdict(model.shape_of(key)) for key in model.keys}
    wire.send("meet", base_sha256=base_sha256, experts=shapes)
    server = _Server(model, wire, folder)
    while (wish := (said := wire.receive()).pop("do")) != "end":
        server.handlers[wish](**said)
    return server.training is not None and server.training.has_ended


class _Server:
    def __init__(self, model: ModeModel, wire: Peer, folder: Path | None) -> None:
        self.model, self.wire, self.folder = model, wire, folder
        self.training: _Training | None = None
        self.passed: list[tuple[Tensor, Tensor]] = []  # each block's input and answers, to go back through
        self.handlers: dict[str, Callable[..., None]] = {"read": self.read, "back": self.back, "learn": self.learn}

    def read(
        self,
        tensors: Sequence[Tensor],
        keys: Sequence[str],
        shape: Sequence[int],
        given: Any,
        named: Any,
        training: bool,
        learning: bool,
        bf16: bool,
    ) -> None:
        """One forward pass."""
        rows = [self.model.branches(key) for key in keys]
        device = rows[0][0].slope.device
        like, *_ = tensors = [tensor.to(device) for tensor in tensors]
        given, named = unpacked(given, tensors), unpacked(named, tensors)
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
        """A training begins."""
        if self.folder is None:
            raise TrainingError("An expert that is to learn must have a folder for its checkpoints.", "Give one.")
        one = self.training = _Training(self.model, keys, learning, TrainingConfig(**config), self.folder, self.wire)
        self.handlers |= {
            "resume": one.resume,
            "update": one.update,
            "best": one.keep_best,
            "save": one.save,
            "settle": one.restore_best,
        }


def _answer(branch: Branch, x_BTD: Tensor, given: Sequence[Any], named: dict[str, Any]) -> Tensor:
    out_BTD, slope_BT, odds = branch.begin(x_BTD, *given, **named)()
    return torch.cat([out_BTD, slope_BT[..., None], odds.expand(*slope_BT.shape, 1)], -1)


class _Training:
    """What this process does of a training: the updates of its own experts."""

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
        self.optimizer = make_optimizer(self.parameters, config)

    def resume(self, step: int) -> None:
        """Goes on from the first process's step; what this one kept of later ones, which that one lacks, is dropped."""
        self.step = step
        for key, parameters in self.of_each.items() if step else ():
            root = self._checkpoint_of(key, step)
            restore(root, step, parameters, self.optimizer)
            self.best |= best_weights(root, step, parameters)
        for key in self.of_each:
            drop_after(expert_folder(self.folder, key), step)
        self._begin_step()

    def _checkpoint_of(self, key: str, step: int) -> Path:
        """Where an expert's is: in its own folder, or with that of all experts."""
        for root in (expert_folder(self.folder, key), self.folder):
            if has_checkpoint(root, step, self.config, self.of_each[key]):
                return root
        raise TrainingError(
            f"{self.folder} must hold the checkpoint of step {step}, which the first process goes on from, but has "
            f"none of the expert “{key}”.",
            "Restore it, or start the training again.",
        )

    def update(self) -> None:
        groups = [GradientGroup(list(self.parameters.values()))]
        clip_and_step(self.optimizer, groups, self.step, self.config, _Member(self.wire))
        self.step += 1
        self._begin_step()

    def _begin_step(self) -> None:
        """What layers draw at random follows from the step, so that a resumed training is one uninterrupted.

        Experts that are all in one process draw what they would beside the backbone, which draws nothing.
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
        self.has_ended = True


class _Member(ProcessGroup):
    """As the rest of the team sees this process: everybody's gradients are clipped together."""

    def __init__(self, wire: Peer) -> None:
        self.wire = wire

    def all_sum(self, value: float) -> float:
        self.wire.send("sum", value=value)
        return float(self.wire.receive()["value"])
