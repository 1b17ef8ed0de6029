"""How the costs of a job are measured before it starts: the same job with a few updates.

A kind of job whose descriptor names a probe has a forecast; nothing else must be written for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from workbench.specs.base import Spec

if TYPE_CHECKING:
    from workbench.specs.base import RegistryObject

_STEPS = 4  # the first is slower than the others, which are measured
_SHORTEST = 32  # tokens of a block that is offered

SpecType = TypeVar("SpecType", bound=Spec)


@dataclass(frozen=True)
class Probe(Generic[SpecType]):
    """A job as short as shows what the full one takes, and how often the full one does what the short one does."""

    short: SpecType
    num_steps: int = 0  # 0: nothing is trained, and the short job is the full one
    num_evaluations: int = 0  # without the one before the first update
    num_checkpoints: int = 0
    base: RegistryObject | None = None  # where the tokenizer is: a seed model, an expert, or a mixture of one base
    smaller: tuple[SpecType, ...] = ()  # the full job with less memory, the nearest first
    num_processes: int = 1  # that train together; the short job is then the largest share that one of them has
    batch_shares: float = 1.0  # sequences of the full job's batch for each of the short one's
    domain_shares: float = 1.0  # domains of the full job for each of the short one's
    expert_shares: float = 1.0  # and experts


def training_probe(spec: Any, base: RegistryObject) -> Probe[Any]:
    """The probe of a spec whose field `training` says how it is trained, from a base in the registry."""
    training = spec.training
    num_steps = min(_STEPS, training.num_steps)
    # A checkpoint before the last: with patience, that one has no best weights beside it.
    short = replace(training, num_steps=num_steps, checkpoint_every=max(1, num_steps // 2))
    return Probe(
        short=spec.model_copy(update={"training": short}),
        num_steps=training.num_steps,
        num_evaluations=-(-training.num_steps // training.evaluate_every),
        num_checkpoints=-(-training.num_steps // training.checkpoint_every),
        base=base,
        smaller=tuple(_smaller(spec)),
    )


def _smaller(spec: Any) -> Iterator[Any]:
    """Computes activations again, which changes no number; or halves the sequences, and afterwards the block.

    Gradients of half the sequences are summed over twice the batches.
    """
    training = spec.training
    if not training.activation_checkpointing:
        yield spec.model_copy(update={"training": replace(training, activation_checkpointing=True)})
    while training.sequences_per_domain > 1:
        half = training.sequences_per_domain // 2
        factor = -(-training.sequences_per_domain // half)
        training = replace(training, sequences_per_domain=half, accumulate=training.accumulate * factor)
        yield spec.model_copy(update={"training": training})
    while training.block_size // 2 >= _SHORTEST:
        training = replace(training, block_size=training.block_size // 2)
        yield spec.model_copy(update={"training": training})
