"""Ratings of models by votes."""

from __future__ import annotations

from pydantic import Field

from workbench.answers.base import Answer


class Rating(Answer):
    """One model with its votes, and its rating where they are enough for one."""

    label: str = Field(description="The model, and how requests changed it.")
    model: str
    num_votes: int
    wins: int
    losses: int
    ties: int = Field(description="With those where both answers were bad.")
    rating: float | None = Field(description="The mean of all is 1,000; 400 points are odds of 10 to 1.")
    low: float | None = Field(description="2.5th percentile; null where the votes give no bound.")
    high: float | None = Field(description="97.5th percentile; null where the votes give no bound.")
    why: str = Field(description="Why it has no rating; empty if it has one.")


class RatedPair(Answer):
    """The votes on two models."""

    a: str
    b: str
    wins_a: int
    wins_b: int
    ties: int
    both_bad: int
    share_a: float | None = Field(description="Of the votes for one of the two, those for a; null if too few.")
    low: float | None = Field(description="Of its 95 % interval (Clopper and Pearson).")
    high: float | None


class RatingTable(Answer):
    """Ratings by the votes on all prompts, or on those of one domain."""

    domain: str = Field(description="Empty: all prompts.")
    sentence: str = Field(description="What the votes say, or that they do not say it.")
    num_votes: int
    num_blind: int
    num_both_bad: int
    rows: list[Rating] = Field(description="The best first; those without a rating last.")
    pairs: list[RatedPair]


class RatingTables(Answer):
    """Ratings on all prompts, then by domain."""

    tables: list[RatingTable]
    least_votes: int = Field(description="Votes that a model needs for a rating.")
    is_blind_only: bool
