"""Held-out perplexity over training tokens: who learns how fast, whether DEMix overtakes Dense, what is forgotten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engine.statistics.perplexity import perplexity_of

Points = Sequence[tuple[int, float]]  # step, nats per token


@dataclass(frozen=True)
class Curve:
    """The held-out losses of one training by domain, and how many tokens one of its steps takes."""

    system: str
    seed: int
    losses: Mapping[str, Points]
    tokens_per_step: int
    target: str = ""  # the novel domain of an adaptation

    def mean(self, domains: Sequence[str]) -> dict[int, float]:
        """The perplexity by tokens, averaged over these domains, where all of them were measured."""
        lines = [dict(self.losses.get(domain, ())) for domain in domains]
        steps = sorted(set(lines[0]).intersection(*lines[1:])) if lines else []
        return {
            step * self.tokens_per_step: float(np.mean([perplexity_of(line[step]) for line in lines])) for step in steps
        }


@dataclass(frozen=True)
class Crossing:
    """Whether one curve gets below another and stays there: from which token count on, and how they end."""

    tokens: int | None  # None: it does not within what was trained
    last_tokens: int
    lower: float
    higher: float


def mean_curve(curves: Sequence[Curve], domains: Sequence[str]) -> dict[int, float]:
    """The mean of several seeds' curves by tokens, where all of them have a point."""
    lines = [curve.mean(domains) for curve in curves]
    shared = sorted(set(lines[0]).intersection(*lines[1:])) if lines else []
    return {tokens: float(np.mean([line[tokens] for line in lines])) for tokens in shared}


def crossing(lower: Mapping[int, float], higher: Mapping[int, float]) -> Crossing | None:
    """From where on `lower` stays below `higher`; None where they share no point."""
    shared = sorted(set(lower) & set(higher))
    if not shared:
        return None
    stays: int | None = None
    for tokens in reversed(shared):
        if lower[tokens] >= higher[tokens]:
            break
        stays = tokens
    return Crossing(stays, shared[-1], lower[shared[-1]], higher[shared[-1]])
