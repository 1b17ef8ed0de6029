"""Training as an iterator of events: the caller drives, closing it means stop, and a checkpoint is left behind.

A resumed training is the uninterrupted one to the last bit on the same CPU (law L17): the data follow from the step,
the random state is seeded anew at every step, and Adam's moments are kept.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from engine.config import TrainingConfig
from engine.errors import NonFiniteLoss, TrainingError
from engine.events import Evaluated, Event, Saved, Saving, Step
from engine.models.demix import DemixModel
from engine.training.checkpoint import resume, save_checkpoint
from engine.training.data import Batch, BlockSampler, DomainText
from engine.training.optimizer import clip_and_step, gradient_groups, learning_rate, make_optimizer


def train(
    model: DemixModel,
    texts: Sequence[DomainText],
    config: TrainingConfig,
    folder: Path,
    *,
    only_experts: Sequence[str] | None = None,
) -> Iterator[Event]:
    """Trains in place from the newest checkpoint in `folder`, or from the start.

    `only_experts` trains these experts alone and leaves every other tensor as it is (DEMix §6); None trains all.
    Raises TrainingError when a domain has too little text, NonFiniteLoss when the loss is no number.
    """
    return _Training(model, texts, config, folder, only_experts).events()


class _Training:
    def __init__(
        self,
        model: DemixModel,
        texts: Sequence[DomainText],
        config: TrainingConfig,
        folder: Path,
        only: Sequence[str] | None,
    ) -> None:
        self.model, self.config, self.folder = model, config, folder
        self.sampler = BlockSampler(texts, config.block_size, config.sequences_per_domain, config.seed)
        self.parameters = trainable(model, only)
        self.optimizer = make_optimizer(self.parameters, config)

    def events(self) -> Iterator[Event]:
        config = self.config
        step = saved = resume(self.folder, self.parameters, self.optimizer, config)
        try:
            while step < config.num_steps:
                news = self._update(step)
                step += 1
                yield news
                if step % config.evaluate_every == 0 or step == config.num_steps:
                    yield self._evaluate(step)
                if step % config.checkpoint_every == 0 or step == config.num_steps:
                    yield Saving(step)
                    saved = step
                    yield self._save(step)
        except GeneratorExit:
            if step > saved:
                self._save(step)
            raise

    def _update(self, step: int) -> Step:
        config, began = self.config, time.perf_counter()
        torch.manual_seed(hash((config.seed, step)))
        self.model.train()
        losses: list[Tensor] = []
        for micro in range(config.accumulate):
            batch = self.sampler.batch(step * config.accumulate + micro)
            losses_BT = self._losses(batch)
            loss = losses_BT.mean() / config.accumulate
            self._require_finite(loss.item(), step)
            loss.backward()
            losses.append(losses_BT.detach().view(len(batch.domains), -1).mean(1))
        clip_and_step(self.optimizer, gradient_groups(self.model, batch.rows), step, config)
        by_domain = torch.stack(losses).mean(0).tolist()
        num_tokens = config.accumulate * losses_BT.numel()
        return Step(
            step + 1, config.num_steps, math.fsum(by_domain) / len(by_domain), learning_rate(step, config), num_tokens,
            num_tokens / (time.perf_counter() - began), dict(zip(batch.domains, by_domain, strict=True)),
        )  # fmt: skip

    def _losses(self, batch: Batch) -> Tensor:
        device = self.model.device
        with self._arithmetic(device):
            logits_BTV = self.model(batch.inputs_BT.to(device), batch.rows)
        losses = nn.functional.cross_entropy(
            logits_BTV.float().flatten(0, 1), batch.targets_BT.to(device).flatten(), reduction="none"
        )
        return losses.view(batch.targets_BT.shape)

    def _arithmetic(self, device: torch.device) -> Any:
        return torch.autocast(device.type, torch.bfloat16) if self.config.precision == "bf16" else nullcontext()

    @torch.no_grad()
    def _evaluate(self, step: int) -> Evaluated:
        self.model.eval()
        losses = {}
        for text in self.sampler.texts:
            losses[text.name] = float(self._losses(self.sampler.held_out(text, self.config.evaluation_blocks)).mean())
        return Evaluated(step, losses)

    def _save(self, step: int) -> Saved:
        return Saved(step, str(save_checkpoint(self.folder, step, self.parameters, self.optimizer, self.config)))

    def _require_finite(self, loss: float, step: int) -> None:
        if not math.isfinite(loss):
            raise NonFiniteLoss(
                f"The loss of step {step + 1} must be a number, but is {loss} instead; nothing was updated.",
                "Lower the learning rate, or look for damaged text.",
            )


def trainable(model: DemixModel, only_experts: Sequence[str] | None) -> Mapping[str, nn.Parameter]:
    """The parameters to train by name; all others have their gradients switched off."""
    parameters: dict[str, nn.Parameter] = {} if only_experts is not None else model.shared_parameters()
    for key in model.keys if only_experts is None else only_experts:
        parameters |= model.expert_parameters(key)
    model.requires_grad_(False)
    for parameter in parameters.values():
        parameter.requires_grad_(True)
    return parameters


def require_context(model: DemixModel, block_size: int) -> None:
    """Raises TrainingError when blocks are longer than the model's context."""
    if block_size > model.max_positions:
        raise TrainingError(
            f"block_size must be at most the model's context of {model.max_positions} tokens, but is {block_size}.",
            "Choose a smaller block size, or a seed with a longer context.",
        )
