"""The table of perplexities, mixtures over stored scores and analyses compare the same text of a domain."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from engine.loading.plan import GenerationPlan, PlannedExpert
from engine.mixing.gates.posterior import PosteriorGateConfig
from tests.workbench.analysis.test_perplexity_tables import score
from workbench.analysis.perplexity_tables import Measure, perplexity_table
from workbench.analysis.scores import most_scored, most_shared_scores, scored_domains, scored_texts, shared_scores
from workbench.registry import corpora, experts

if TYPE_CHECKING:
    from tests.workbench.conftest import World

Scored = list[tuple[str, int, int]]  # expert, tokens, block size

CASES: dict[str, tuple[Scored, tuple[int, int]]] = {
    "the longest, though scored first": (
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


def test_an_evaluation_of_less_text_does_not_replace_one_of_more_that_one_expert_lacks(world: World) -> None:
    world.experts("law", "news", "sea")
    for expert, tokens in [("law", 900), ("news", 900), ("law", 100), ("news", 100), ("sea", 100)]:
        score(world, expert, "law", 10.0, num_tokens=tokens, block_size=8)
    assert perplexity_table(world.session, None).measures == [Measure(block_size=8, num_tokens=900)]
    rows = [experts.expert_row(world.session, name) for name in ("law", "news", "sea")]
    domain_id = corpora.get_domain(world.session, "law").id
    assert len(most_shared_scores(world.session, rows, domain_id, "test")) == 2
    shared = shared_scores(world.session, rows, domain_id, "test")
    assert shared is not None
    assert {row.num_tokens for row in shared.values()} == {100}


def test_the_mixture_is_measured_without_an_expert_that_lacks_scores_and_says_so(world: World) -> None:
    world.experts("law", "news", "sea")
    for domain, expert in [("law", "law"), ("law", "news"), ("news", "law"), ("news", "news"), ("sea", "sea")]:
        score(world, expert, domain, 10.0)
    planned = plan_of(world, "law", "news", "sea")
    texts = scored_texts(world.session, planned, "test")
    assert [(text.domain, text.without) for text in texts] == [
        ("law", ("sea",)),
        ("news", ("sea",)),
        ("sea", ("law", "news")),
    ]
    assert [expert.name for expert in texts[0].planned.experts] == ["law", "news"]
    chosen, narrowed, without = most_scored(world.session, planned, "test")
    assert [expert.name for expert in chosen.experts] == ["law", "news"]
    assert [text.domain for text in narrowed] == ["law", "news"]
    assert without == ["sea"]


def test_a_toggle_does_not_change_the_text_of_a_mixture(world: World) -> None:
    world.experts("law", "news", "sea")
    for expert, tokens in [("law", 300), ("news", 300), ("sea", 100), ("law", 100), ("news", 100)]:
        score(world, expert, "law", 10.0, num_tokens=tokens, block_size=8)
    for on in (("law", "news", "sea"), ("law", "sea"), ("law",)):
        (text,) = scored_texts(world.session, plan_of(world, *on), "test")
        assert text.evaluations[0].num_tokens == 300
    assert scored_texts(world.session, plan_of(world, "sea"), "test") == []


def plan_of(world: World, *on: str) -> GenerationPlan:
    """A plan of these experts of a mixture of law, news and sea."""
    rows = {name: experts.expert_row(world.session, name) for name in ("law", "news", "sea")}
    base: Any = None
    planned = tuple(PlannedExpert(rows[name].id, name, "", Path(), 1.0, base) for name in on)
    ids = tuple(row.id for row in rows.values())
    return GenerationPlan("mix", planned, ids, "", PosteriorGateConfig())


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
