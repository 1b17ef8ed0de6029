"""Numbers of different tokens do not stand beside each other, or say that they do."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import select

from tests.ui.studio.visits import open_page
from ui.cli.app import main
from ui.present.charts.colours import Looks
from ui.present.charts.curves_and_bars import expert_bars
from ui.present.text.measures import measure_words, unknown_accuracy_words
from ui.studio.app_pages.overview import holdings
from workbench.analysis.perplexity_tables import DomainMeasure, PerplexityTable
from workbench.answers.cards import EvaluationCard, ExpertCard
from workbench.registry.database import reading, transaction
from workbench.registry.experts import expert_row as row_of
from workbench.registry.experts import list_experts
from workbench.schema.tables import Evaluation


def scored(
    expert: str,
    domain: str,
    perplexity: float,
    block_size: int = 128,
    at: float = 0.0,
    accuracy: float | None = None,
    split: str = "test",
) -> EvaluationCard:
    return EvaluationCard(
        expert=expert,
        domain=domain,
        split=split,
        block_size=block_size,
        num_tokens=4096,
        perplexity=perplexity,
        accuracy=accuracy,
        created_at=at,
    )


@pytest.fixture
def cards(filled_home: Path) -> list[ExpertCard]:
    with reading() as session:
        return [card for card in list_experts(session) if card.domain in ("code", "prose")]


def test_a_caption_names_the_block_size_and_what_differs() -> None:
    rows = [DomainMeasure(domain=name, block_size=128, num_tokens=4096) for name in ("law", "sea")]
    assert measure_words(rows) == "In blocks of 128 tokens, 4,096 tokens of each domain."
    odd = DomainMeasure(domain="code", block_size=256, num_tokens=512)
    assert measure_words([*rows, odd]).endswith("; but code in blocks of 256, 512 tokens.")
    assert measure_words([]) == ""


def test_bars_are_of_one_text_and_only_domains_with_all_experts_have_a_winner(cards: list[ExpertCard]) -> None:
    one, two = (card.name for card in cards)
    scores = [scored(name, f"d{n}", 10.0 + n) for n in range(8) for name in (one, two)]
    scores += [scored(one, "alone", 1.0), scored(two, "d0", 2.0, block_size=256, at=9.0)]
    picture = expert_bars(cards, scores, Looks())
    assert picture is not None
    assert picture.table[1] == {"domain": "d0", "measured on": "test, 4,096 in blocks of 128", one: 10.0, two: 10.0}
    assert "on alone" not in picture.words
    assert "1 domain not counted" in picture.words
    assert "2 more domains in the table" in picture.words


def test_accuracies_that_are_not_known_are_counted_with_what_to_do() -> None:
    table = PerplexityTable(
        experts=["a", "b"],
        domains=["law", "sea"],
        measures=[],
        perplexity=[[10.0, 9.0], [None, 8.0]],
        accuracy=[[0.25, None], [None, None]],
        specialization=[],
    )
    shown = unknown_accuracy_words(table, "mix")
    assert shown.startswith("The accuracy of 2 scores is not known")
    assert shown.endswith("workbench evaluate run mix --again.")
    assert unknown_accuracy_words(table.model_copy(update={"accuracy": [[0.25, 0.1], [None, 0.0]]}), "mix") == ""


@pytest.mark.usefixtures("filled_home")
def test_the_command_line_shows_accuracies_and_how_to_learn_those_that_are_missing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def shown(forgotten: int) -> str:
        with transaction() as session:
            for row in session.scalars(select(Evaluation).limit(forgotten)):
                row.num_correct = None
        assert main(["evaluate", "show", "first"]) == 0
        return capsys.readouterr().out

    known, some, none = shown(0), shown(1), shown(1000)
    assert "Accuracy: % of tokens" in known
    assert "--again" not in known
    assert "The accuracy of 1 score is not known" in some
    assert "Accuracy: % of tokens" in some
    assert "workbench evaluate run first --again" in none
    assert "Accuracy: %" not in none


@pytest.mark.usefixtures("filled_home")
def test_the_registry_is_read_on_the_split_that_was_chosen() -> None:
    app = open_page("experts", experts__split="dev", experts__view="Table")
    assert not app.exception
    (rows,) = [one.value for one in app.dataframe if "in-domain perplexity (per token)" in one.value.columns]
    assert rows["in-domain perplexity (per token)"].isna().all()
    assert "on test only" in list(rows["measured on"])


@pytest.mark.usefixtures("filled_home")
def test_a_model_of_many_domains_is_scored_when_it_has_any_score() -> None:
    assert holdings().unscored == []
    with transaction() as session:
        row_of(session, "first/code").domain = None
    assert holdings().unscored == []
