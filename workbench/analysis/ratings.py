"""Ratings of models by votes on their answers: Bradley-Terry, by all prompts and by domain."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field
from sqlalchemy import select
from sqlalchemy.orm import Session, aliased

from workbench.answers.base import Answer
from workbench.registry.comparisons import label
from workbench.schema.tables import ComparedAnswer, Comparison, Vote

if TYPE_CHECKING:
    from engine.statistics.bradley_terry import Votes


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


LEAST_VOTES = 10  # of a model, or of a pair
_SHOWN_DIGITS = 8  # of a setup's hash, where two models have one name


@dataclass(frozen=True)
class _RatedModel:
    """A model as it was at the vote: two setups of one name are two players."""

    model: str
    variant: str
    setup: str


@dataclass(frozen=True)
class _Ballot:
    """One vote: who won, or None."""

    comparison: str
    domain: str
    first: _RatedModel
    second: _RatedModel
    choice: str
    is_blind: bool

    @property
    def winner(self) -> _RatedModel | None:
        return {"first": self.first, "second": self.second}.get(self.choice)

    @property
    def players(self) -> tuple[_RatedModel, _RatedModel]:
        return self.first, self.second


def rating_tables(
    session: Session, *, domain: str = "", blind_only: bool = False, by_name: bool = False
) -> RatingTables:
    """Ratings on all prompts and by domain, or of one domain only.

    With `by_name` all setups that had one name count as one model. Votes on two equal setups say nothing and are left
    out.
    """
    ballots = [one for one in _ballots(session, by_name) if one.is_blind or not blind_only]
    by_domain: dict[str, list[_Ballot]] = defaultdict(list)
    for ballot in ballots:
        by_domain[ballot.domain].append(ballot)
    names = [domain] if domain else ["", *sorted(name for name in by_domain if name)]
    tables = [_table(name, by_domain[name] if name else ballots) for name in names]
    return RatingTables(tables=tables, least_votes=LEAST_VOTES, is_blind_only=blind_only)


def _ballots(session: Session, by_name: bool) -> list[_Ballot]:
    first, second = aliased(ComparedAnswer), aliased(ComparedAnswer)
    sides = [column for side in (first, second) for column in (side.model, side.variant, side.setup_sha256)]
    statement = (
        select(Vote.comparison_id, Comparison.domain, Vote.choice, Vote.is_blind, *sides)
        .join(Comparison, Comparison.id == Vote.comparison_id)
        .join(first, (first.comparison_id == Vote.comparison_id) & (first.position == Vote.first))
        .join(second, (second.comparison_id == Vote.comparison_id) & (second.position == Vote.second))
        .order_by(Vote.created_at, Vote.id)
    )
    ballots = []
    for comparison, domain, choice, is_blind, *six in session.execute(statement):
        setups = ("", "") if by_name else (six[2], six[5])
        a, b = _RatedModel(six[0], six[1], setups[0]), _RatedModel(six[3], six[4], setups[1])
        ballots.append(_Ballot(comparison, domain, a, b, choice, is_blind))
    return [one for one in ballots if one.first != one.second]


def _table(domain: str, ballots: Sequence[_Ballot]) -> RatingTable:
    players = list(dict.fromkeys(player for ballot in ballots for player in ballot.players))
    names = {player: label(player.model, player.variant) for player in players}
    number = Counter(names.values())
    labels = {
        player: name if number[name] == 1 else f"{name} ({player.setup[:_SHOWN_DIGITS]})"
        for player, name in names.items()
    }
    rows, sentence = _rating_rows(players, labels, ballots)
    return RatingTable(
        domain=domain,
        sentence=sentence,
        num_votes=len(ballots),
        num_blind=sum(one.is_blind for one in ballots),
        num_both_bad=sum(one.choice == "both_bad" for one in ballots),
        rows=sorted(rows, key=lambda row: (row.rating is None, -(row.rating or 0.0), row.label)),
        pairs=_pairs(labels, ballots),
    )


def _rating_rows(
    players: Sequence[_RatedModel], labels: dict[_RatedModel, str], ballots: Sequence[_Ballot]
) -> tuple[list[Rating], str]:
    """A row for each player, and what the votes say of the two best."""
    if not players:
        return [], "There is no vote yet."
    rated = _ratable(players, ballots)
    if len(rated) < 2:
        return [_row(one, labels[one], ballots) for one in players], _without_ratings(players, labels, ballots)
    from engine.statistics.bradley_terry import rate

    fitted = rate(_votes(rated, ballots))
    numbers = {
        player: (float(fitted.ratings[place]), _finite(fitted.low[place]), _finite(fitted.high[place]))
        for place, player in enumerate(rated)
    }
    best, second = (int(place) for place in np.argsort(-fitted.ratings, kind="stable")[:2])
    low, _ = fitted.difference(best, second)
    sentence = "{} is better than {}" if low > 0 else "The votes do not separate {} from {}"
    rows = [_row(one, labels[one], ballots, numbers.get(one)) for one in players]
    return rows, sentence.format(labels[rated[best]], labels[rated[second]])


def _ratable(players: Sequence[_RatedModel], ballots: Sequence[_Ballot]) -> list[_RatedModel]:
    """The largest group of players with enough votes that wins link in both directions."""
    from engine.statistics.bradley_terry import connected_groups

    enough = [player for player in players if sum(player in one.players for one in ballots) >= LEAST_VOTES]
    votes = _votes(enough, ballots)
    if not enough or not len(votes.shares):
        return []
    groups = connected_groups(votes.wins())
    return [player for player, group in zip(enough, groups, strict=True) if group == np.bincount(groups).argmax()]


def _votes(players: Sequence[_RatedModel], ballots: Sequence[_Ballot]) -> Votes:
    """The votes on two of these players; those on one prompt's answers are a cluster."""
    from engine.statistics.bradley_terry import Votes

    places = {player: place for place, player in enumerate(players)}
    among = [one for one in ballots if one.first in places and one.second in places]
    clusters = {id: place for place, id in enumerate(dict.fromkeys(one.comparison for one in among))}
    return Votes(
        np.array([clusters[one.comparison] for one in among], np.int64),
        np.array([places[one.first] for one in among], np.int64),
        np.array([places[one.second] for one in among], np.int64),
        np.array([0.5 if one.winner is None else float(one.winner == one.first) for one in among]),
        len(players),
    )


def _row(
    player: _RatedModel,
    name: str,
    ballots: Sequence[_Ballot],
    numbers: tuple[float, float | None, float | None] | None = None,
) -> Rating:
    own = [one for one in ballots if player in one.players]
    wins, ties = sum(one.winner == player for one in own), sum(one.winner is None for one in own)
    rating, low, high = numbers or (None, None, None)
    losses = len(own) - wins - ties
    return Rating(
        label=name,
        model=player.model,
        num_votes=len(own),
        wins=wins,
        losses=losses,
        ties=ties,
        rating=rating,
        low=low,
        high=high,
        why="" if numbers else _why(len(own), wins, losses, ties),
    )


def _why(num_votes: int, wins: int, losses: int, ties: int) -> str:
    if num_votes < LEAST_VOTES:
        return f"not enough votes: {num_votes} of {LEAST_VOTES}"
    if not ties and not losses:
        return "won every vote: the votes give no upper bound"
    if not ties and not wins:
        return "lost every vote: the votes give no lower bound"
    return "no chain of wins links it to the rated models in both directions"


def _without_ratings(players: Sequence[_RatedModel], labels: dict[_RatedModel, str], ballots: Sequence[_Ballot]) -> str:
    if len(ballots) < LEAST_VOTES or len(players) > 2:
        return f"Not enough votes to rate two models: each needs {LEAST_VOTES}, and wins and losses"
    winner = max(players, key=lambda player: sum(one.winner == player for one in ballots))
    other = next(player for player in players if player != winner)
    return f"{labels[winner]} has won every vote against {labels[other]}: by how much it is better is not known"


def _pairs(labels: dict[_RatedModel, str], ballots: Sequence[_Ballot]) -> list[RatedPair]:
    by_pair: dict[frozenset[_RatedModel], list[_Ballot]] = defaultdict(list)
    for ballot in ballots:
        by_pair[frozenset(ballot.players)].append(ballot)
    pairs = [_pair(labels, sorted(two, key=labels.__getitem__), own) for two, own in by_pair.items()]
    return sorted(pairs, key=lambda pair: (-(pair.wins_a + pair.wins_b + pair.ties + pair.both_bad), pair.a, pair.b))


def _pair(labels: dict[_RatedModel, str], two: Sequence[_RatedModel], ballots: Sequence[_Ballot]) -> RatedPair:
    wins_a, wins_b = (sum(one.winner == player for one in ballots) for player in two)
    decided, share, low, high = wins_a + wins_b, None, None, None
    if decided >= LEAST_VOTES:
        from scipy.stats import binomtest

        interval = binomtest(wins_a, decided).proportion_ci()
        share, low, high = wins_a / decided, float(interval.low), float(interval.high)
    both_bad = sum(one.choice == "both_bad" for one in ballots)
    return RatedPair(
        a=labels[two[0]],
        b=labels[two[1]],
        wins_a=wins_a,
        wins_b=wins_b,
        ties=len(ballots) - wins_a - wins_b - both_bad,
        both_bad=both_bad,
        share_a=share,
        low=low,
        high=high,
    )


def _finite(bound: float) -> float | None:
    return float(bound) if np.isfinite(bound) else None
