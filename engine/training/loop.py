"""The training loop, an iterator of events: the caller drives, and closing it stops with a checkpoint.

On the same CPU a resumed training is bit-identical to an uninterrupted one (law L17): the data depend on the step, the
random state is seeded at every step, and Adam's moments and the state of early stopping are stored. The same loop
runs in each process of a distributed training; its process group exchanges data.

Of conversations only the tokens of answers are in the loss. It is their mean over the full batch: all accumulated
batches of all processes together, as transformers' Trainer has it (`num_items_in_batch`).

Shapes: A accumulated batches, B rows, T positions.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
from torch import Tensor

from engine.config import TrainingConfig
from engine.errors import NonFiniteLossError
from engine.events import Evaluated, Event, Note, Saving, Step, TextSample, TrainingFinished
from engine.models.compiled import compiling_failed
from engine.models.discovery import router_losses
from engine.models.expert_model import TrainableModel, require_separation, trainable
from engine.models.likelihoods import Objective
from engine.training.data import Batch, BlockSampler, DomainText, LossMeans, counted_rows, num_counted_tokens, step_seed
from engine.training.distributed import SINGLE_PROCESS, ProcessGroup
from engine.training.memory import MemorySaving, TrainingTensors, show
from engine.training.optimizer import autocast_for, clip_and_step, gradient_groups, learning_rate, make_optimizer
from engine.training.run_state import RunState


def train(
    model: TrainableModel,
    texts: Sequence[DomainText],
    config: TrainingConfig,
    folder: Path,
    *,
    only_experts: Sequence[str] | None = None,
    balanced: bool = True,
    watch: Callable[[], Mapping[str, float]] | None = None,
    listen: Callable[[str], AbstractContextManager[object]] = nullcontext,
    sample: Callable[[int], Sequence[TextSample]] | None = None,
    team: ProcessGroup = SINGLE_PROCESS,
) -> Iterator[Event]:
    """Trains in place from the newest checkpoint in `folder`, or from the start.

    `only_experts` trains only these experts and leaves every other tensor unchanged (DEMix §6); None trains all.
    Unless `balanced`, the domains of one expert are sampled in proportion to their text.
    Held-out losses are also measured before the first update. `watch` returns more of them (nats per token) for each
    evaluation, in the training's precision; they do not influence the training. `listen` returns a context that is
    active while a domain's held-out text is read. `sample` returns texts that the current model writes after that many
    updates (`engine.inference.sampling`); it must leave the global random state unchanged.
    With patience the model has the best weights at the end.
    In a process group each process passes the same texts, and a model with only its own experts.
    Raises TrainingError when a domain has too little text or conversations cannot be kept apart, NonFiniteLossError
    when the loss is not finite, DoesNotFitError when it must take more memory than there is.
    """
    separate, most = config.separate_conversations, config.max_sequences
    per_domain, rows = config.sequences_per_domain, team.rows
    sampler = BlockSampler(texts, config.block_size, per_domain, config.seed, rows, balanced, most, separate)
    training = _Training(model, sampler, config, folder, only_experts, team)
    training.watch, training.listen, training.sample = watch, listen, sample
    return training.events()


class _Training:
    def __init__(
        self,
        model: TrainableModel,
        sampler: BlockSampler,
        config: TrainingConfig,
        folder: Path,
        only: Sequence[str] | None,
        team: ProcessGroup,
    ) -> None:
        self.model, self.sampler, self.config, self.team = model, sampler, config, team
        self.watch: Callable[[], Mapping[str, float]] | None = None
        self.listen: Callable[[str], AbstractContextManager[object]] = nullcontext
        self.sample: Callable[[int], Sequence[TextSample]] | None = None
        self.parameters = trainable(model, only)
        self.optimizer = make_optimizer(self.parameters, config)
        self.state = RunState(folder, self.parameters, self.optimizer, config, team)
        self.memory = MemorySaving(model, self.parameters, config, is_single=team is SINGLE_PROCESS)
        self.flops_per_token = model.training_flops(config.block_size, experts_only=only is not None)

    def events(self) -> Iterator[Event]:
        with self.memory.stored_bits():
            show(TrainingTensors(self.model, self.parameters, self.optimizer, self.sampler))
            self.memory.replace_layers(self.sampler.rows)
            if self.sampler.separates:
                require_separation(self.model, self.config.block_size)
            step = yield from self._steps()
        yield self._finished(step)

    def _steps(self) -> Generator[Event, None, int]:
        """Trains to the end, and returns the step."""
        state = self.state
        step = saved = state.resume()
        if not self._is_over(step):
            yield self.memory.requirements()
        try:
            while True:
                if self._must_evaluate(step):
                    yield self._evaluate(step)
                is_over = self._is_over(step)
                if is_over and state.restore_best():
                    saved = -1
                is_due = step > saved and (is_over or step % self.config.checkpoint_every == 0)
                if state.in_flight and (is_due or is_over or state.in_flight.is_written()):
                    yield state.finish_in_flight(state.in_flight)
                if is_due:
                    yield Saving(step)
                    saved = step
                    if is_over or not state.save_in_background(step):
                        yield state.save(step)
                if is_over:
                    break
                event = self._update_or_save_memory(step)
                step += isinstance(event, Step)
                yield event
        except GeneratorExit:
            if state.in_flight:
                state.finish_in_flight(state.in_flight)
            if step > saved:
                state.save(step)
            raise
        except BaseException as error:
            if complete := state.end_with(error):
                yield complete
            raise
        self.team.finish()
        return step

    def _must_evaluate(self, step: int) -> bool:
        """True also after a stop between an update and its evaluation, so that none is left out."""
        is_due = step % self.config.evaluate_every == 0 or step == self.config.max_steps
        return is_due and self.state.history.evaluated_step < step

    def _is_over(self, step: int) -> bool:
        out_of_patience = self.config.patience is not None and self.state.history.num_worse >= self.config.patience
        return out_of_patience or step >= self.config.max_steps

    def _finished(self, step: int) -> TrainingFinished:
        """The final event, also for a finished training that is resumed: it does not evaluate again."""
        history, max_steps = self.state.history, self.config.max_steps
        if self.config.patience:
            return TrainingFinished(history.best_step, step, max_steps, history.best_losses, history.first_losses)
        return TrainingFinished(step, step, max_steps, history.last_losses, history.first_losses)

    def _update_or_save_memory(self, step: int) -> Step | Note:
        """An update; or, where a GPU's memory does not suffice for its passes, what makes them need less."""
        config, began = self.config, time.perf_counter()
        torch.manual_seed(step_seed(config.seed, step) + self.team.rank)
        self.model.train()
        batches = [self.sampler.batch(step * config.accumulate + micro) for micro in range(config.accumulate)]
        try:
            losses_ABT = self._backward(batches)
        except torch.OutOfMemoryError:
            consequence = self.memory.reduce(len(batches[0].places))
            if not consequence:
                raise
        except Exception as error:
            if failure := compiling_failed(error):
                raise failure from error
            raise
        else:
            return self._update(step, batches, losses_ABT, began)
        self.optimizer.zero_grad()  # of the part of the update that was done
        torch.cuda.empty_cache()
        return Note(f"The GPU's memory does not suffice for step {step + 1}: from here on {consequence}.")

    def _update(self, step: int, batches: Sequence[Batch], losses_ABT: Tensor, began: float) -> Step:
        """Changes the weights by the gradients that are there."""
        config, losses = self.config, LossMeans(batches, losses_ABT)
        loss = losses.mean()
        if loss is not None:
            _require_finite(loss, f"The loss of step {step + 1}", "nothing was updated")
        groups = gradient_groups(self.model, counted_rows(batches, self.sampler.rows))
        for group in groups:
            self.team.sum_gradients(group.key, group.gradients)
        self.team.step()
        clip_and_step(self.optimizer, groups, step, config, self.team)
        num_tokens = losses_ABT.numel()
        return Step(
            step + 1,
            config.max_steps,
            loss,
            learning_rate(step, config),
            num_tokens,
            num_tokens / (time.perf_counter() - began),
            losses.by_domain(),
            num_tokens * self.flops_per_token,
        )

    def _backward(self, batches: Sequence[Batch]) -> Tensor:
        """Accumulates this process's part of the gradients; returns the losses of all rows."""
        losses, num_counted = [], num_counted_tokens(batches)
        for batch in batches:
            losses.append(torch.cat([self._of_part(part, num_counted) for part in batch.parts(self.memory.num_parts)]))
        return self.team.gather_losses(torch.stack(losses), batch.places, batch.num_rows)

    def _of_part(self, batch: Batch, num_counted: int | None) -> Tensor:
        """Adds its gradients; returns the losses [B, T] of its rows."""
        share = batch.share / self.config.accumulate
        if num_counted is None:
            objective = Objective(batch.targets_BT.numel() / share)
        else:
            objective = Objective(max(num_counted, 1), batch.counted_BT.to(self.model.device))
        with router_losses(self.model.lm) as auxiliary, autocast_for(self.config.precision, self.model.device):
            text, apart = self._on_device(batch)
            loss, losses_BT = self.model.losses(*text, batch.rows, objective, **apart)
        (loss + auxiliary.loss() * share).backward()
        return losses_BT

    def _on_device(self, batch: Batch) -> tuple[tuple[Tensor, Tensor], dict[str, Tensor]]:
        """Inputs and targets of this process's rows, and where conversations are kept apart their positions."""
        device, positions_BT = self.model.device, batch.position_ids_BT
        apart = {} if positions_BT is None else {"position_ids_BT": positions_BT.to(device)}
        return (batch.inputs_BT.to(device), batch.targets_BT.to(device)), apart

    def _held_out_losses(self, name: str, batch: Batch) -> Tensor:
        if not batch.places:
            self.team.join_forward(self.model, batch.targets_BT.shape[1])
            return torch.zeros(batch.targets_BT.shape, device=self.model.device)
        text, apart = self._on_device(batch)
        with self.listen(name), autocast_for(self.config.precision, self.model.device):
            return -self.model.token_scores(*text, batch.rows, **apart).logprobs_BT

    @torch.no_grad()
    def _evaluate(self, step: int) -> Evaluated:
        self.model.eval()
        batches = {text.name: self.sampler.held_out(text, self.config.evaluation_blocks) for text in self.sampler.texts}
        losses = {name: self._held_out_losses(name, batch)[None] for name, batch in batches.items()}
        gathered = {name: self.team.gather_losses(losses[name], b.places, b.num_rows) for name, b in batches.items()}
        means = {name: LossMeans([batches[name]], losses_1BT).held_out() for name, losses_1BT in gathered.items()}
        for name, loss in means.items():  # after the last update no step would notice
            when = f"after step {step}" if step else "before the first update"
            _require_finite(
                loss,
                f"The held-out loss of “{name}” {when}",
                "these weights are not saved" if step else "nothing was updated",
            )
        self.state.add_evaluation(step, means)
        is_sampled = self.sample is not None and bool(step or self.watch or self.config.patience)
        with autocast_for(self.config.precision, self.model.device):
            watched = self.watch() if self.watch else {}
            samples = self.sample(step) if self.sample and is_sampled else ()
        return Evaluated(step, {**means, **watched}, samples=samples)


def _require_finite(loss: float, what: str, consequence: str) -> None:
    if not math.isfinite(loss):
        raise NonFiniteLossError(
            f"{what} is {loss}; {consequence}.",
            "Lower the learning rate, or look for damaged text.",
        )
