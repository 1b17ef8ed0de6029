"""What the votes in a registry say of the models, and what they do not say."""

from __future__ import annotations

import pytest
from sqlalchemy.orm import Session

from workbench.analysis.ratings import LEAST_VOTES, RatingTable, rating_tables
from workbench.schema.tables import ComparedAnswer, Comparison, Vote


def cast(
    session: Session,
    choice: str,
    number: int = 1,
    *,
    models: tuple[str, str] = ("demo", "dense"),
    setups: tuple[str, str] = ("1", "2"),
    domain: str = "law",
    is_blind: bool = False,
) -> None:
    """So many votes, each on a comparison of its own."""
    for _ in range(number):
        row = Comparison(domain=domain)
        row.answers = [
            ComparedAnswer(position=place, model=model, setup_sha256=setup * 64)
            for place, (model, setup) in enumerate(zip(models, setups, strict=True))
        ]
        row.votes = [Vote(first=0, second=1, choice=choice, is_blind=is_blind)]
        session.add(row)
    session.flush()


def overall(session: Session, **options: bool) -> RatingTable:
    return rating_tables(session, **options).tables[0]


def test_the_better_model_is_named_with_its_interval(session: Session) -> None:
    cast(session, "first", 30)
    cast(session, "second", 8)
    cast(session, "tie", 2)
    cast(session, "both_bad", 2)
    table = overall(session)
    best, worst = table.rows
    assert (best.label, best.num_votes, best.wins, best.losses, best.ties) == ("demo", 42, 30, 8, 4)
    assert (best.low or 0) < (best.rating or 0) < (best.high or 0)
    assert (best.rating or 0) + (worst.rating or 0) == pytest.approx(2000)
    assert table.sentence == "demo is better than dense"
    assert (table.num_votes, table.num_both_bad) == (42, 2)
    [pair] = table.pairs
    assert (pair.a, pair.b, pair.wins_a, pair.wins_b, pair.ties, pair.both_bad) == ("demo", "dense", 30, 8, 2, 2)
    assert pair.share_a == pytest.approx(30 / 38)


def test_even_votes_separate_nobody(session: Session) -> None:
    cast(session, "first", 11)
    cast(session, "second", 10)
    assert overall(session).sentence == "The votes do not separate demo from dense"


def test_few_votes_rate_nobody(session: Session) -> None:
    assert overall(session).sentence == "There is no vote yet."
    cast(session, "first", LEAST_VOTES - 2)
    cast(session, "second", 1)
    table = overall(session)
    assert [row.rating for row in table.rows] == [None, None]
    assert table.rows[0].why == f"not enough votes: {LEAST_VOTES - 1} of {LEAST_VOTES}"
    assert table.sentence.startswith("Not enough votes")
    assert table.pairs[0].share_a is None
    cast(session, "second", 1)
    assert None not in [row.rating for row in overall(session).rows]


def test_a_model_that_won_every_vote_has_no_number(session: Session) -> None:
    cast(session, "first", 12)
    table = overall(session)
    assert [row.rating for row in table.rows] == [None, None]
    assert {row.label: row.why for row in table.rows} == {
        "demo": "won every vote: the votes give no upper bound",
        "dense": "lost every vote: the votes give no lower bound",
    }
    assert "by how much it is better is not known" in table.sentence
    [pair] = table.pairs
    assert (pair.a, pair.share_a, pair.high) == ("demo", 1, 1)
    assert pair.low == pytest.approx(0.025 ** (1 / 12))  # Clopper and Pearson


def test_a_model_linked_only_by_wins_is_left_out_and_the_others_rated(session: Session) -> None:
    cast(session, "first", 9)
    cast(session, "second", 9)
    cast(session, "first", 12, models=("best", "dense"), setups=("3", "2"))
    rows = {row.label: row for row in overall(session).rows}
    assert rows["best"].rating is None
    assert rows["demo"].rating == pytest.approx(1000)
    assert rows["dense"].rating == pytest.approx(1000)


def test_each_domain_has_a_table_of_its_own(session: Session) -> None:
    cast(session, "first", 15)
    cast(session, "second", 5)
    cast(session, "second", 15, domain="code")
    cast(session, "first", 5, domain="code")
    cast(session, "tie", 1, domain="")
    tables = {table.domain: table for table in rating_tables(session).tables}
    assert {domain: table.num_votes for domain, table in tables.items()} == {"": 41, "code": 20, "law": 20}
    assert tables["law"].rows[0].label == "demo"
    assert tables["code"].rows[0].label == "dense"
    [code] = rating_tables(session, domain="code").tables
    assert code == tables["code"]


def test_blind_votes_can_be_read_separately(session: Session) -> None:
    cast(session, "first", 3, is_blind=True)
    cast(session, "first", 4)
    assert overall(session).num_blind == 3
    assert overall(session, blind_only=True).num_votes == 3


def test_a_changed_mixture_is_another_model_unless_names_count(session: Session) -> None:
    cast(session, "first", 2)
    cast(session, "first", 3, setups=("9", "2"))
    assert sorted(row.label for row in overall(session).rows) == ["demo (11111111)", "demo (99999999)", "dense"]
    by_name = {row.label: row.num_votes for row in overall(session, by_name=True).rows}
    assert by_name == {"demo": 5, "dense": 5}


def test_a_vote_on_twice_the_same_model_says_nothing(session: Session) -> None:
    cast(session, "first", 3, setups=("1", "1"), models=("demo", "demo"))
    assert overall(session).num_votes == 0
