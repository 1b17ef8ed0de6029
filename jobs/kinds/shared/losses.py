"""Held-out losses at the end of a training, from its events."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from statistics import fmean
from typing import cast

from engine.events import Evaluated, Event, TrainingFinished
from jobs.kinds.shared.tokens import DomainFiles


def last_losses(events: Iterator[Event]) -> Generator[Event, None, dict[str, float]]:
    """Passes events on. Returns the losses of the last evaluation, or with patience of the best."""
    losses: dict[str, float] = {}
    with closing(cast(Generator[Event, None, None], events)):
        for event in events:
            if isinstance(event, Evaluated | TrainingFinished):
                losses |= event.loss_by_domain
            yield event
    return losses


def mean_loss(losses: Mapping[str, float], domains: Sequence[DomainFiles]) -> float | None:
    """The mean loss over these domains, equally weighted; None if none was evaluated."""
    known = [losses[domain.name] for domain in domains if domain.name in losses]
    return fmean(known) if known else None
