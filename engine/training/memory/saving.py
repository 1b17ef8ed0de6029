"""What makes a training take less memory: chosen before it starts, or turned on where a GPU has too little."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

from torch import nn

from engine.config import TrainingConfig
from engine.errors import TrainingError
from engine.events import Requirements
from engine.models.activation_checkpointing import can_checkpoint_activations, checkpointed_activations
from engine.models.compiled import compiled_layers, compiled_loss
from engine.models.routers import routers
from engine.models.rows import Rows
from engine.models.trainable_model import TrainableModel
from engine.training.autocast import in_training_precision
from engine.training.memory.low_bits import frozen_in_4bit
from engine.training.memory.needs import Needs, least_needs, require_memory


class MemorySaving:
    """The options of one training that change what its weights and passes take."""

    def __init__(
        self, model: TrainableModel, parameters: Mapping[str, nn.Parameter], config: TrainingConfig, *, is_single: bool
    ) -> None:
        """`is_single`: no other process trains with this one. Call it while the weights are as they are stored."""
        self.num_parts = 1  # in which the rows of a batch are read
        self._model, self._parameters, self._config, self._is_single = model, parameters, config, is_single
        self._recomputes, self._until_end = False, ExitStack()
        self._needs = self._needs_with(config)

    def _needs_with(self, config: TrainingConfig) -> Needs:
        return least_needs(self._model, self._parameters, config, self._model.device)

    def requirements(self) -> Requirements:
        """What the training takes at least; raises DoesNotFitError where that is more memory than there is."""
        require_memory(self._needs, self._config, self._needs_with if self._is_single else None)  # else no bits to save
        return self._needs.event(self._config, is_single=self._is_single)

    @contextmanager
    def stored_bits(self) -> Iterator[None]:
        """Within it weights have the bits of the training; after it everything is as before.

        Raises TrainingError for options that were never tried in several processes that train together.
        """
        config, device = self._config, self._model.device
        if config.of_one_process and not self._is_single:
            raise TrainingError(
                f"{' and '.join(config.of_one_process)} work in one process only.",
                "Train in one process, or without these options.",
            )
        short = frozen_in_4bit(self._model, config.precision, device) if config.load_in_4bit else nullcontext()
        trained = self._parameters.values()
        with short, in_training_precision(self._model, trained, config.precision, device), self._until_end:
            yield

    def replace_layers(self, rows: Rows) -> None:
        """Fuses, compiles and recomputes layers as configured, until `stored_bits` ends."""
        self._until_end.enter_context(fused_activations(self._model))
        if self._config.compile:
            self._until_end.enter_context(compiled_loss(self._model.lm))
            self._until_end.enter_context(compiled_layers(self._model.lm, rows))
        if self._config.activation_checkpointing:
            self._recompute_activations()

    def _recompute_activations(self) -> None:
        self._until_end.enter_context(checkpointed_activations(self._model.lm))
        self._recomputes = True

    def reduce(self, num_rows: int) -> str:
        """Makes the passes of later updates take less, and says by what; empty if that is not possible.

        Processes that train together wait for each other within an update, so theirs cannot change.
        """
        if not self._is_single:
            return ""
        if not self._recomputes and can_checkpoint_activations(self._model.lm):
            self._recompute_activations()
            return (
                "activations are computed again in the backward pass (activation_checkpointing), which changes no "
                "number but takes a third more operations"
            )
        if self.num_parts >= num_rows or routers(self._model.lm):  # routers spread the tokens of all rows evenly
            return ""
        self.num_parts = min(2 * self.num_parts, num_rows)
        return (
            f"the {num_rows} rows of a batch are read in {self.num_parts} parts, which changes losses in their last "
            "digits alone but takes longer"
        )


@contextmanager
def fused_activations(model: Any) -> Iterator[None]:
    """Within it, each “gelu_new” of the model is computed by PyTorch's kernel; after it, as transformers does."""
    from transformers.activations import GELUTanh, NewGELUActivation

    places = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if type(child) is NewGELUActivation
    ]
    for parent, name, _ in places:
        setattr(parent, name, GELUTanh())
    try:
        yield
    finally:
        for parent, name, child in places:
            setattr(parent, name, child)
