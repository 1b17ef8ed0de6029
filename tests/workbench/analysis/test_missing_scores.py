"""What a mixture's numbers lack, the jobs that make it, and how long these take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.workbench.analysis.test_perplexity_tables import score
from workbench.analysis.missing_scores import evaluations_of, evaluations_of_cells, scoring_seconds
from workbench.analysis.perplexity_tables import DomainMeasure
from workbench.job_records.jobs import create_job
from workbench.job_records.preconditions import advice_on
from workbench.kinds.analysis import Evaluate
from workbench.registry import mixtures
from workbench.registry.experts import list_experts
from workbench.schema.job_tables import Job
from workbench.schema.tables import Evaluation
from workbench.specs.requests import MixtureSpec

if TYPE_CHECKING:
    from tests.workbench.conftest import World


def test_missing_scores_are_made_on_the_text_that_is_compared() -> None:
    texts = [
        DomainMeasure(domain="law", block_size=128, num_tokens=11_776),
        DomainMeasure(domain="sea", block_size=128, num_tokens=900),
        DomainMeasure(domain="code", block_size=8, num_tokens=64),
    ]
    specs = evaluations_of("mix", "dev", texts)
    assert [(spec.domains, spec.block_size, spec.max_tokens, spec.split) for spec in specs] == [
        (["law", "sea"], 128, 11_776, "dev"),
        (["code"], 8, 100, "dev"),
    ]


def test_empty_cells_are_scored_with_a_mixture_of_their_expert_or_of_its_base(world: World) -> None:
    world.experts("law", "news", "sea")
    mixtures.create_mixture(world.session, MixtureSpec(name="mix", experts=["news", "law"]))
    cards = {card.name: card for card in list_experts(world.session)}
    texts = [DomainMeasure(domain="law", block_size=128, num_tokens=900)]
    cells = [("news", "law"), ("sea", "law"), ("sea", "sea")]
    measured, new = evaluations_of_cells(cells, texts, "test", cards)
    assert (measured.mixture, measured.experts, measured.domains) == ("mix", ["sea"], ["law"])
    assert (measured.block_size, measured.max_tokens) == (128, 900)
    assert (new.mixture, new.experts, new.domains, new.block_size) == ("mix", ["sea"], ["sea"], None)
    apart = {"sea": cards["sea"].model_copy(update={"base_id": "another"})}
    assert evaluations_of_cells(cells[1:], texts, "test", cards | apart) == []


def test_scoring_is_estimated_by_the_pace_of_the_last_evaluation(world: World) -> None:
    assert scoring_seconds(world.session, 1000) is None
    world.experts("law", "news")
    mixtures.create_mixture(world.session, MixtureSpec(name="mix", experts=["news", "law"]))
    job = world.session.get_one(Job, create_job(world.session, Evaluate(mixture="mix")))
    for expert in ("law", "news"):
        score(world, expert, "law", 10.0, num_tokens=500)
    for row in world.session.query(Evaluation):
        row.job_id = job.id
    job.state, job.started_at, job.finished_at = "done", 100.0, 110.0
    world.session.flush()
    assert scoring_seconds(world.session, 3000) == 30.0


def test_an_evaluation_of_less_text_than_is_stored_says_so_before_it_starts(world: World) -> None:
    world.experts("law", "news")
    mixtures.create_mixture(world.session, MixtureSpec(name="mix", experts=["news", "law"]))
    score(world, "law", "law", 10.0, num_tokens=11_776)
    (advice,) = advice_on(world.session, Evaluate(mixture="mix", max_tokens=1280))
    assert advice.startswith("1,280 tokens are less text than is scored already: 11,776 on law. ")
    for enough in ({"max_tokens": 12_000}, {}, {"max_tokens": 1280, "split": "dev"}):
        assert advice_on(world.session, Evaluate.model_validate({"mixture": "mix", **enough})) == []
