"""A replication reads the scores of the models that its own jobs made, and of no others under their names."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from workbench.analysis import perplexity_tables
from workbench.job_records import jobs
from workbench.kinds.analysis import SelfCheck
from workbench.registry import corpora, experts
from workbench.schema.tables import Expert
from workbench.specs.requests import PlanStep
from workbench_studies.demix.names import SIZES
from workbench_studies.running.submission import StoredResults

if TYPE_CHECKING:
    from tests.workbench.conftest import World

SIZE = SIZES["smoke"]
TEXTS = ("law", "sea", "poems")


def score(world: World, expert: str, num_tokens: int) -> None:
    perplexity_tables.register_evaluation(
        world.session,
        expert_id=experts.get_expert(world.session, expert).id,
        domain_id=corpora.get_domain(world.session, "law").id,
        split="test",
        block_size=SIZE.block_size,
        num_tokens=num_tokens,
        log_likelihood=-1.0,
        artifact=world.artifact("scores"),
    )


@pytest.fixture
def results(world: World) -> StoredResults:
    """Of the job that made the expert law; sea is another's."""
    world.experts("law", "sea")
    made = jobs.create_job(world.session, SelfCheck())
    world.session.get_one(Expert, experts.get_expert(world.session, "law").id).job_id = made
    submitted = [(PlanStep("law", SelfCheck(), "Train law"), jobs.get_job(world.session, made))]
    return StoredResults(world.session, world.storage, SIZE, submitted)


def test_only_experts_of_its_jobs_count(world: World, results: StoredResults) -> None:
    score(world, "law", 1024)
    score(world, "sea", 1024)
    assert set(results.scores(TEXTS)) == {("law", "law", "test")}
    assert replace(results, submitted=[]).scores(TEXTS) == {}


def test_the_longest_text_counts_that_its_size_requests(world: World, results: StoredResults) -> None:
    for num_tokens in (512, 1024, 2048):
        score(world, "law", num_tokens)
    assert results.scores(TEXTS)["law", "law", "test"].num_tokens == SIZE.test_tokens == 1024
