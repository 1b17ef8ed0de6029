"""The table of perplexities, mixtures over stored scores and analyses compare the same text of a domain."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.workbench.analysis.test_perplexity_tables import score
from workbench.analysis.perplexity_tables import Measure, perplexity_table
from workbench.analysis.scores import scored_domains, shared_scores
from workbench.registry import corpora, experts

if TYPE_CHECKING:
    from tests.workbench.conftest import World

Scored = list[tuple[str, int, int]]  # expert, tokens, block size

CASES: dict[str, tuple[Scored, tuple[int, int]]] = {
    "what most were scored on": (
        [("law", 100, 8), ("news", 100, 8), ("sea", 100, 8), ("law", 900, 8), ("news", 900, 8)],
        (100, 8),
    ),
    "then the longest, though scored first": (
        [(name, tokens, 8) for tokens in (900, 100) for name in ("law", "news", "sea")],
        (900, 8),
    ),
    "then the longest blocks, though scored first": (
        [(name, 900, block) for block in (16, 8) for name in ("law", "news", "sea")],
        (900, 16),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_three_surfaces_compare_the_same_text(world: World, case: str) -> None:
    scored, (num_tokens, block_size) = CASES[case]
    world.experts("law", "news", "sea")
    for expert, tokens, block in scored:
        score(world, expert, "law", 10.0, num_tokens=tokens, block_size=block)
    assert perplexity_table(world.session, None).measures == [Measure(block_size=block_size, num_tokens=num_tokens)]
    rows = [experts.expert_row(world.session, name) for name in ("law", "news", "sea")]
    planned: Any = SimpleNamespace(member_ids=[row.id for row in rows], experts=rows)
    (mixed,) = scored_domains(world.session, cast(Any, planned), "test").values()
    shared = shared_scores(world.session, rows, corpora.get_domain(world.session, "law").id, "test")
    assert shared is not None
    for matched in (mixed, list(shared.values())):
        assert {(one.num_tokens, one.block_size) for one in matched} == {(num_tokens, block_size)}
        assert len(matched) == 3


def test_scores_of_one_text_compare_only_where_as_many_tokens_count(world: World) -> None:
    world.experts("law", "news", "sea")
    for expert, num_counted in {"law": 40, "news": 40, "sea": 55}.items():
        score(world, expert, "law", 10.0, num_counted=num_counted)
    rows = [experts.expert_row(world.session, name) for name in ("law", "news", "sea")]
    domain_id = corpora.get_domain(world.session, "law").id
    compared = shared_scores(world.session, rows[:2], domain_id, "test")
    assert compared is not None
    assert {row.num_counted for row in compared.values()} == {40}
    assert shared_scores(world.session, rows, domain_id, "test") is None


def test_a_score_of_all_tokens_is_not_compared_with_one_of_answers(world: World) -> None:
    world.experts("law", "news")
    score(world, "law", "law", 10.0)
    score(world, "news", "law", 10.0, num_counted=40)
    rows = [experts.expert_row(world.session, name) for name in ("law", "news")]
    assert shared_scores(world.session, rows, corpora.get_domain(world.session, "law").id, "test") is None


def test_what_not_all_were_scored_on_is_no_comparison(world: World) -> None:
    world.experts("law", "news")
    score(world, "law", "law", 10.0)
    rows = [experts.expert_row(world.session, name) for name in ("law", "news")]
    assert shared_scores(world.session, rows, corpora.get_domain(world.session, "law").id, "test") is None
    planned: Any = SimpleNamespace(member_ids=[row.id for row in rows], experts=rows)
    assert scored_domains(world.session, cast(Any, planned), "test") == {}
