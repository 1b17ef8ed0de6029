"""Experts: where they come from, what is said of them, who needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import select

from workbench.errors import BadSpecError, InUseError, NameTakenError, NotFoundError
from workbench.job_records import jobs
from workbench.kinds.analysis import Evaluate
from workbench.kinds.training.mode import ComposeMode
from workbench.kinds.training.train_expert import TrainExpert
from workbench.registry import experts, mixtures
from workbench.schema.job_tables import Job
from workbench.schema.tables import Artifact
from workbench.specs.requests import MixtureSpec

if TYPE_CHECKING:
    from tests.workbench.conftest import World


def test_an_expert_says_where_it_comes_from(world: World) -> None:
    world.corpus("library", "law", "news")
    seed = world.seed()
    base = world.artifact("base")
    parent = world.expert("law", "law", base=base, seed_id=seed.id)
    child = world.expert("news", "news", base=base, seed_id=seed.id, parent_id=parent.id, code_version="1.2")
    mixtures.create_mixture(world.session, MixtureSpec(name="both", experts=["law", "news"]))
    card = experts.get_expert(world.session, "news")
    assert (card.domain, card.seed, card.parent, card.base_id) == ("news", "seed", "law", base.id)
    assert (card.code_version, card.mixtures, card.enabled) == ("1.2", ["both"], True)
    assert len(card.sha256) == 64
    assert [expert.id for expert in experts.list_experts(world.session)] == [parent.id, child.id]


def test_names_are_unique_and_known(world: World) -> None:
    world.experts("law", "news")
    with pytest.raises(NameTakenError, match="An expert called “law” exists already"):
        world.expert("law", "news")
    with pytest.raises(NotFoundError, match="Known: law, news"):
        experts.get_expert(world.session, "lwa")


def test_an_expert_of_a_domain_that_is_gone_is_refused(world: World) -> None:
    with pytest.raises(NotFoundError, match="There is no domain"):
        world.expert("law", "law")


def test_notes_and_tags_are_kept_clean(world: World) -> None:
    world.experts("law")
    experts.describe(world.session, "law", tags=["b", " a ", "b", ""])
    card = experts.describe(world.session, "law", notes="reads contracts \x00")
    assert card.tags == ["a", "b"]
    assert card.notes == "reads contracts �"


def test_a_new_name_changes_nothing_else(world: World) -> None:
    world.experts("law", "news")
    before = experts.get_expert(world.session, "law")
    after = experts.rename(world.session, "law", " jurist ")
    assert after == before.model_copy(update={"name": "jurist"})
    assert experts.rename(world.session, "jurist", "jurist") == after
    with pytest.raises(NameTakenError):
        experts.rename(world.session, "jurist", "news")
    with pytest.raises(BadSpecError):
        experts.rename(world.session, "jurist", "a\tb")


@pytest.mark.parametrize("state", ["queued", "running", "paused"])
def test_a_name_that_unfinished_jobs_know_an_expert_by_stays(world: World, state: str) -> None:
    world.experts("law", "news")
    job_id = jobs.create_job(world.session, ComposeMode(name="both", experts=["law", "news"]))
    job = world.session.get_one(Job, job_id)
    job.state = state
    with pytest.raises(InUseError, match="“law” cannot be renamed: it is needed by job “Compose experts into"):
        experts.rename(world.session, "law", "jurist")
    assert experts.rename(world.session, "law", "law").name == "law"
    job.state = "cancelled"
    assert experts.rename(world.session, "law", "jurist").name == "jurist"


def test_experts_are_switched_together_or_not_at_all(world: World) -> None:
    world.experts("law", "news")
    with pytest.raises(NotFoundError):
        experts.set_enabled(world.session, ["law", "lwa"], False)
    assert all(card.enabled for card in experts.list_experts(world.session))
    assert not any(card.enabled for card in experts.set_enabled(world.session, ["law", "news"], False))


def test_the_last_expert_takes_its_base_along(world: World) -> None:
    world.experts("law", "news")
    num_before = len(world.session.scalars(select(Artifact)).all())
    experts.delete_expert(world.session, "law")
    assert len(world.session.scalars(select(Artifact)).all()) == num_before - 1
    experts.delete_expert(world.session, "news")
    assert [artifact.kind for artifact in world.session.scalars(select(Artifact))] == ["documents"]


def test_an_expert_in_use_says_who_needs_it(world: World) -> None:
    law, updates = world.experts("law", "news")
    world.expert("child", "news", parent_id=law.id)
    mixtures.create_mixture(world.session, MixtureSpec(name="both", experts=["law", "news"]))
    job_spec = TrainExpert(name="new", domain="news", mixture="both", parent="law")
    jobs.create_job(world.session, job_spec)
    jobs.create_job(world.session, Evaluate(mixture="both", experts=["law"]), "Score law, too")
    with pytest.raises(InUseError) as caught:
        experts.delete_expert(world.session, "law")
    for user in ("expert “child”", "mixture “both”", "“Score law, too”, “Train expert new”"):
        assert user in caught.value.problem
    assert experts.get_expert(world.session, updates.name)


def test_the_lineage_runs_from_the_seed_to_the_mixtures(world: World) -> None:
    world.corpus("library", "law", "news")
    seed = world.seed()
    base = world.artifact("base")
    first = world.expert("first", "law", base=base, seed_id=seed.id)
    second = world.expert("second", "law", base=base, seed_id=seed.id, parent_id=first.id)
    third = world.expert("third", "law", base=base, seed_id=seed.id, parent_id=second.id)
    mixture = mixtures.create_mixture(world.session, MixtureSpec(name="mix", experts=["second"]))
    result = experts.lineage(world.session, "second")
    assert [(node["kind"], node["name"]) for node in result["nodes"]] == [
        ("seed", "seed"),
        ("expert", "first"),
        ("expert", "second"),
        ("expert", "third"),
        ("mixture", "mix"),
    ]
    assert [(edge["source"], edge["target"]) for edge in result["edges"]] == [
        (seed.id, first.id),
        (first.id, second.id),
        (second.id, third.id),
        (second.id, mixture.id),
    ]


def test_what_was_put_together_comes_of_all_its_parts_and_they_of_their_seed(world: World) -> None:
    world.corpus("library", "law", "news")
    seed = world.seed()
    law, updates = (world.expert(name, name, seed_id=seed.id) for name in ("law", "news"))
    shown = {"composed_of": [{"id": one.id, "name": one.name} for one in (law, updates)]}
    both = world.expert("both", "law", seed_id=seed.id, parent_id=law.id, config=shown)
    result = experts.lineage(world.session, "both")
    assert sorted(node["name"] for node in result["nodes"]) == ["both", "law", "news", "seed"]
    assert sorted((edge["source"], edge["target"]) for edge in result["edges"]) == sorted(
        [(seed.id, law.id), (seed.id, updates.id), (law.id, both.id), (updates.id, both.id)]
    )
    assert (both.parent, both.parents) == ("law", ["law", "news"])


def test_an_expert_out_of_nowhere_is_its_own_lineage(world: World) -> None:
    world.experts("law")
    result = experts.lineage(world.session, "law")
    assert [node["name"] for node in result["nodes"]] == ["law"]
    assert result["edges"] == []
