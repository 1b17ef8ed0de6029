"""What to try next, from what exists. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ui.parts.rooms import CORPORA, JOBS, PLAYGROUND, POSTERIORS, SPECIALIZATION, TRAIN, Room


@dataclass(frozen=True)
class Holdings:
    """How many of each thing there are."""

    domains: int = 0
    seeds: int = 0
    experts: int = 0
    mixtures: int = 0
    evaluations: int = 0
    failed_jobs: int = 0


@dataclass(frozen=True)
class Suggestion:
    """One thing to try: a sentence that says why, and the room to do it in."""

    sentence: str
    room: Room


def suggestions(have: Holdings) -> list[Suggestion]:
    """The next thing on the way first; never more than three."""
    return [*_suggest(have)][:3]


def _suggest(have: Holdings) -> Iterator[Suggestion]:
    if have.failed_jobs:
        yield Suggestion("A job has failed: read its cause and its next step, then retry it.", JOBS)
    if not have.domains:
        yield Suggestion("Bring in text: each kind of text becomes a domain that an expert can learn.", CORPORA)
        return
    if not have.seeds:
        yield Suggestion("Make a seed model: the small decoder that all experts start from.", TRAIN)
        return
    if not have.experts:
        yield Suggestion("Train a DEMix model: one expert for each domain, everything else shared.", TRAIN)
        return
    if not have.evaluations:
        yield Suggestion("Evaluate the experts: scores are stored once and make every toggle instant.", TRAIN)
    else:
        yield Suggestion("See how much each expert is at home in its domain.", SPECIALIZATION)
    yield Suggestion("Paste a text and watch which expert speaks for which word.", POSTERIORS)
    yield Suggestion("Compare two mixtures side by side while they write.", PLAYGROUND)
