"""Perplexity as a number that a float and JSON can hold, however little a model knows of a text."""

from __future__ import annotations

import math

MOST_NATS = 700.0  # the exponential of 710 is no longer a float; a diverged model needs thousands of nats per token


def perplexity_of(nats_per_token: float) -> float:
    """exp of the mean negative log-likelihood per token; of more than `MOST_NATS` it is theirs."""
    return math.exp(min(nats_per_token, MOST_NATS))
