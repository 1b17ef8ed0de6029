"""Perplexities of another tokenizer or block size are marked, and never compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.ui.present.test_headlines import mean
from tests.ui.present.test_mixture_effect import row
from tests.ui.studio.conftest import fill
from tests.ui.studio.test_studio_measures import scored
from ui.present.charts.colours import looks_of
from ui.present.headlines import best_of
from ui.present.mixture_effect import describe_unlike_rows, effect_rows, effect_title
from ui.present.picture import card_of, scores_of
from ui.present.text.measures import RULE, TokenMeasure, comparable, describe_comparability, odd_measures
from ui.studio.overview.contents import read_contents
from workbench.analysis.perplexity_tables import comparable as comparable_rows
from workbench.schema.tables import Evaluation
from workbench.settings import get_settings

MOST = TokenMeasure("ab", 256)


def test_what_differs_from_most_is_named_and_nothing_where_all_compare() -> None:
    measures = {"a": MOST, "b": MOST, "c": TokenMeasure("cd", 128), "d": TokenMeasure("ab", 64)}
    assert odd_measures(measures) == {"c": "another tokenizer, blocks of 128", "d": "blocks of 64"}
    assert describe_comparability(measures) == (
        f"{RULE} Here 2 of 4 numbers are in blocks of 256 tokens of one tokenizer; the others are marked."
    )
    assert odd_measures({"a": MOST, "b": MOST}) == {}
    assert describe_comparability({"a": MOST}) == describe_comparability({}) == ""


def test_the_card_of_an_expert_of_another_measure_is_marked(home: Path) -> None:
    assert home
    fill(get_settings())
    have = read_contents()
    other = [one.model_copy(update={"tokenizer_sha256": "ef" * 32}) for one in have.experts if one.domain == "code"]
    shown = [*other, *(one for one in have.experts if one.domain != "code")]
    scores = scores_of(have.evaluations)
    odd = odd_measures(scores.measures(shown))
    assert odd == {"first/code": "another tokenizer"}
    card = card_of(other[0], None, scores, looks_of(shown), [], False, odd=odd["first/code"])
    assert ["another tokenizer", "late"] in card["badges"]


def test_the_best_mixture_is_the_best_of_those_measured_on_the_same_tokens() -> None:
    usual = [mean("a", law=20, sea=30), mean("b", law=22, sea=20)]
    small = replace(mean("small vocabulary", law=2, sea=3), tokenizer="cd")
    best = best_of([*usual, small])
    assert best is not None
    assert best.mixture == "b"


def test_two_mixtures_are_not_compared_where_the_tokens_differ() -> None:
    before = [row("law", 10).model_copy(update={"block_size": 128}), row("sea", 8)]
    now = [row("law", 5), row("sea", 8)]
    rows = effect_rows(before, now)
    assert [one["change (%)"] for one in rows] == [None, 0.0]
    assert describe_unlike_rows(before, now, "duo").startswith(
        "Not compared on law, since the tokens differ: duo was scored in"
    )
    assert describe_unlike_rows(now, now, "duo") == ""
    assert effect_title(effect_rows([], now)) == "Nothing to compare"


def test_scores_of_two_tokenizers_are_two_texts_even_of_as_many_tokens() -> None:
    def expert(name: str, tokenizer: str) -> Any:
        return type("Card", (), {"name": name, "tokenizer_sha256": tokenizer})

    scores = [scored(name, "law", 9.0) for name in ("a", "b", "c")]
    shown = comparable(scores, [expert("a", "ab"), expert("b", "ab"), expert("c", "cd")])
    assert [one.expert for one in shown] == ["a", "b"]


@pytest.mark.parametrize(
    ("tokenizers", "shared"), [({}, {"a", "b", "c"}), ({"a": "ab", "b": "ab", "c": "cd"}, {"a", "b"})]
)
def test_a_table_holds_the_text_of_one_tokenizer(tokenizers: dict[str, str], shared: set[str]) -> None:
    def stored(expert: str) -> Any:
        return Evaluation(domain_id="law", expert_id=expert, num_tokens=9, block_size=8)

    assert set(comparable_rows(map(stored, "abc"), tokenizers)["law"]) == shared
