"""What a training's events say of how good the model is at its end."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from statistics import fmean
from typing import cast

from engine.events import Evaluated, Event, TrainingFinished
from jobs.kinds.shared.tokens import DomainFiles


def last_losses(events: Iterator[Event]) -> Generator[Event, None, dict[str, float]]:
    """Passes events on; gives the losses of the last evaluation, with patience of the best."""
    losses: dict[str, float] = {}
    with closing(cast(Generator[Event, None, None], events)):
        for event in events:
            if isinstance(event, Evaluated | TrainingFinished):
                losses |= event.loss_by_domain
            yield event
    return losses


def mean_loss(losses: Mapping[str, float], domains: Sequence[DomainFiles]) -> float | None:
    """The loss over these domains, each of the same weight; None where nothing was evaluated."""
    found = [losses[domain.name] for domain in domains if domain.name in losses]
    return fmean(found) if found else None
