"""Perplexities, and specialization; artifacts and their sweep."""

from __future__ import annotations

import json
import math
import os
import time
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import select

from workbench.analysis import perplexity_tables
from workbench.analysis.perplexity_tables import Measure
from workbench.answers.cards import EvaluationCard
from workbench.errors import BadSpecError, NotFoundError, StorageError
from workbench.job_records import jobs
from workbench.kinds.analysis import Evaluate
from workbench.kinds.training.make_seed import MakeSeed
from workbench.registry import corpora, experts, mixtures
from workbench.schema.tables import Artifact
from workbench.specs.requests import MixtureSpec
from workbench.store import artifacts

if TYPE_CHECKING:
    from tests.workbench.conftest import World


def score(world: World, expert: str, domain: str, perplexity: float, **other: Any) -> EvaluationCard:
    measure = {"split": "test", "block_size": 8, "num_tokens": 100, **other}
    return perplexity_tables.register_evaluation(
        world.session,
        expert_id=experts.get_expert(world.session, expert).id,
        domain_id=corpora.get_domain(world.session, domain).id,
        log_likelihood=-measure["num_tokens"] * math.log(perplexity),
        artifact=world.artifact("scores"),
        **measure,
    )


def test_perplexity_is_the_exponential_of_the_mean_loss(world: World) -> None:
    world.experts("law")
    card = score(world, "law", "law", 7.5)
    assert card.perplexity == pytest.approx(7.5)
    assert perplexity_tables.list_evaluations(world.session) == [card]


def test_accuracy_is_the_share_of_right_tokens_and_unknown_where_they_were_not_counted(world: World) -> None:
    world.experts("law", "news")
    assert score(world, "law", "law", 7.5, num_correct=40).accuracy == pytest.approx(0.4)
    assert score(world, "news", "law", 7.5).accuracy is None
    assert score(world, "law", "news", 7.5, num_correct=0).accuracy == 0
    table = perplexity_tables.perplexity_table(world.session, None)
    assert table.accuracy == [[pytest.approx(0.4), 0], [None, None]]
    score(world, "news", "law", 7.5, num_correct=50)  # scored again
    assert perplexity_tables.perplexity_table(world.session, None).accuracy == [[0.4, 0], [0.5, None]]


def test_the_same_measure_twice_keeps_the_newer(world: World) -> None:
    world.experts("law")
    score(world, "law", "law", 9.0)
    score(world, "law", "law", 8.0)
    (card,) = perplexity_tables.list_evaluations(world.session, expert="law")
    assert card.perplexity == pytest.approx(8.0)
    assert len(world.session.scalars(select(Artifact).where(Artifact.kind == "scores")).all()) == 1


@pytest.mark.parametrize(("num_tokens", "nats"), [(0, -1.0), (5, math.nan), (5, -math.inf)])
def test_no_tokens_and_no_numbers_are_no_evaluation(world: World, num_tokens: int, nats: float) -> None:
    with pytest.raises(BadSpecError, match="Scores need tokens"):
        perplexity_tables.register_evaluation(
            world.session,
            expert_id="",
            domain_id="",
            split="test",
            block_size=8,
            num_tokens=num_tokens,
            log_likelihood=nats,
            artifact=Artifact(),
        )


def test_a_hopeless_expert_still_has_a_number(world: World) -> None:
    world.experts("law")
    row = score(world, "law", "law", 2.0, num_tokens=1)
    assert row.perplexity == pytest.approx(2.0)
    hopeless = perplexity_tables.Evaluation(log_likelihood=-1e9, num_tokens=1)
    assert json.dumps(perplexity_tables.perplexity(hopeless), allow_nan=False)


def test_the_table_sets_every_expert_against_every_domain(world: World) -> None:
    world.experts("law", "news")
    mixtures.create_mixture(world.session, MixtureSpec(name="mix", experts=["news", "law"]))
    score(world, "law", "law", 10.0)
    score(world, "news", "law", 20.0)
    score(world, "news", "news", 5.0)
    table = perplexity_tables.perplexity_table(world.session, "mix")
    assert (table.experts, table.domains) == (["news", "law"], ["law", "news"])
    assert table.perplexity == [[pytest.approx(20), pytest.approx(5)], [pytest.approx(10), None]]
    assert table.specialization == [[pytest.approx(2), pytest.approx(1)], [pytest.approx(1), None]]
    assert perplexity_tables.perplexity_table(world.session, None).experts == ["law", "news"]


def test_a_domain_without_an_expert_of_its_own_has_no_ratio(world: World) -> None:
    world.experts("law")
    world.corpus("second", "novel", role="novel")
    mixtures.create_mixture(world.session, MixtureSpec(name="mix", experts=["law"]))
    score(world, "law", "novel", 30.0)
    table = perplexity_tables.perplexity_table(world.session, "mix")
    assert table.perplexity == [[pytest.approx(30)]]
    assert table.specialization == [[None]]


def test_numbers_of_other_tokens_do_not_stand_beside_each_other(world: World) -> None:
    world.experts("law", "news")
    for expert, perplexity in (("law", 10.0), ("news", 20.0)):
        score(world, expert, "law", perplexity)
    score(world, "law", "law", 4.0, num_tokens=999)
    table = perplexity_tables.perplexity_table(world.session, None)
    assert table.perplexity == [[pytest.approx(10)], [pytest.approx(20)]]
    score(world, "news", "law", 5.0, num_tokens=999)
    newest = perplexity_tables.perplexity_table(world.session, None)
    assert newest.perplexity == [[pytest.approx(4)], [pytest.approx(5)]]


def test_a_mixture_is_scored_like_its_stored_scores_unless_set_otherwise(world: World) -> None:
    world.experts("law", "news")
    mixtures.create_mixture(world.session, MixtureSpec(name="mix", experts=["news", "law"]))
    usual = (perplexity_tables.USUAL_BLOCK, perplexity_tables.USUAL_TOKENS)
    assert perplexity_tables.measure_for(world.session, "mix", "test") == usual
    experts.expert_row(world.session, "law").config = {"block_size": 64}
    assert perplexity_tables.measure_for(world.session, "mix", "test") == (64, perplexity_tables.USUAL_TOKENS)
    jobs.create_job(world.session, Evaluate(mixture="mix", block_size=32, max_tokens=2048))  # its scores are to come
    assert perplexity_tables.measure_for(world.session, "mix", "test") == (32, 2048)
    assert perplexity_tables.measure_for(world.session, "mix", "test", 16) == (16, 2048)
    for expert in ("law", "news"):
        score(world, expert, "law", 10.0, block_size=128, num_tokens=32_768)
        score(world, expert, "news", 10.0, block_size=128, num_tokens=900)
    score(world, "law", "law", 9.0, block_size=256, num_tokens=99_999)
    assert perplexity_tables.measure_for(world.session, "mix", "test") == (128, 32_768)
    assert perplexity_tables.measure_for(world.session, "mix", "test", 32, 500) == (32, 500)
    assert perplexity_tables.measure_for(world.session, "mix", "dev") == (64, perplexity_tables.USUAL_TOKENS)
    measures = perplexity_tables.perplexity_table(world.session, "mix").measures
    assert measures == [Measure(block_size=128, num_tokens=tokens) for tokens in (32_768, 900)]


def test_splits_are_kept_apart(world: World) -> None:
    world.experts("law")
    score(world, "law", "law", 10.0, split="dev")
    assert perplexity_tables.perplexity_table(world.session, None, "test").domains == []
    assert len(perplexity_tables.list_evaluations(world.session, split="dev")) == 1
    with pytest.raises(NotFoundError):
        perplexity_tables.perplexity_table(world.session, "mix")


def test_a_scored_corpus_and_a_scored_expert_are_deleted_with_their_scores(world: World) -> None:
    world.experts("law", "news")
    world.corpus("second", "novel", role="novel")
    for expert in ("law", "news"):
        score(world, expert, "novel", 10.0)
        score(world, expert, "law", 10.0)
    corpora.delete_corpus(world.session, "second")
    experts.delete_expert(world.session, "law")
    left = perplexity_tables.list_evaluations(world.session)
    assert [(card.expert, card.domain) for card in left] == [("news", "law")]
    assert len(world.session.scalars(select(Artifact).where(Artifact.kind == "scores")).all()) == 1


# artifacts -------------------------------------------------------------------------------------------


def test_an_artifact_is_retrieved_by_what_it_was_made_from(world: World) -> None:
    row = world.artifact("tokens", key="tokens:law:hash")
    assert artifacts.find_artifact(world.session, "tokens:law:hash") is row
    assert artifacts.find_artifact(world.session, "tokens:law:other") is None


def test_of_two_made_for_one_key_the_first_stays(world: World) -> None:
    first = world.artifact("tokens", key="tokens:law:hash")
    assert world.artifact("tokens", key="tokens:law:hash") is first


def test_what_is_not_in_storage_gets_no_row(world: World) -> None:
    with pytest.raises(StorageError):
        artifacts.register_artifact(world.session, world.storage, "a" * 32, "thing")


def test_a_sweep_spares_what_an_unfinished_job_may_have_made(world: World) -> None:
    known = world.artifact()
    with world.storage.new("a" * 32) as folder:
        (folder / "model").touch()
    job = jobs.create_job(world.session, MakeSeed(name="seed", domains=["law"]))
    for path in [world.storage.path("a" * 32), *world.storage.path("a" * 32).iterdir()]:
        os.utime(path, (time.time() + 1, time.time() + 1))
    assert artifacts.sweep(world.session, world.storage, -10) == []
    jobs.request_stop(world.session, job, "cancel")
    assert artifacts.sweep(world.session, world.storage, -10) == [world.storage.path("a" * 32)]
    world.storage.kept(known).check()
