"""Held-out losses at the end of a training, from its events."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from statistics import fmean
from typing import cast

from engine.events import Evaluated, Event, TrainingFinished
from jobs.kinds.shared.tokens import DomainFiles


@dataclass(frozen=True)
class HeldOut:
    """Mean losses on the held-out text of an expert's domains, in nats per token; None where none was measured."""

    after: float | None = None
    before: float | None = None  # before the training


@dataclass(frozen=True)
class Losses:
    """Held-out losses by domain: of the last evaluation, or with patience of the best, and before the first update."""

    after: Mapping[str, float]
    before: Mapping[str, float]

    def of(self, domains: Sequence[DomainFiles]) -> HeldOut:
        """The means over these domains, equally weighted."""
        return HeldOut(_mean_loss(self.after, domains), _mean_loss(self.before, domains))


def last_losses(events: Iterator[Event]) -> Generator[Event, None, Losses]:
    """Passes events on. Returns the losses of the weights that the training leaves, and those before it."""
    losses: dict[str, float] = {}
    before: Mapping[str, float] = {}
    with closing(cast(Generator[Event, None, None], events)):
        for event in events:
            if isinstance(event, Evaluated | TrainingFinished):
                losses |= event.loss_by_domain
            if isinstance(event, TrainingFinished):
                before = event.loss_at_start
            yield event
    return Losses(losses, before)


def _mean_loss(losses: Mapping[str, float], domains: Sequence[DomainFiles]) -> float | None:
    known = [losses[domain.name] for domain in domains if domain.name in losses]
    return fmean(known) if known else None
