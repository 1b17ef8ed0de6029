"""What a removal leaves behind of a domain: the sentence of each method is true of what the registry knows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.workbench.conftest import World
from workbench.services import jobs, mixtures, seeds
from workbench.services.experts import expert_row
from workbench.services.unlearning import what_stays
from workbench.specs import MixtureSpec
from workbench.tables import Artifact, Job
from workbench.training_specs import MakeSeed, TrainDemix, TrainExpert


@pytest.fixture
def world(world: World) -> World:
    """Text of three domains and a fresh seed model."""
    world.corpus("texts", "law", "code", "sea")
    world.seed()
    return world


def trained_base(world: World, *domains: str, method: Any = "demix") -> Artifact:
    """A base that a training of these domains made."""
    base = world.artifact("demix-base")
    spec = TrainDemix(name=f"on {' '.join(domains)}", seed_model="seed", domains=list(domains), method=method)
    base.job_id = jobs.create_job(world.session, spec)
    return base


def seed_base(world: World, seed: str = "seed") -> dict[str, Any]:
    """The base of what is trained beside a seed model that stays as it is, and that seed."""
    row = seeds.seed_row(world.session, seed)
    return {"base": row.artifact, "seed_id": row.id}


def left_after(world: World, removed: str, *others: str) -> str:
    """What stays of an expert's domain in a mixture with others."""
    mixtures.create_mixture(world.session, MixtureSpec(name="all", experts=[removed, *others]))
    return what_stays(world.session, "all", expert_row(world.session, removed))


def test_of_demix_experts_that_were_trained_together_the_shared_parameters_know_all_domains(world: World) -> None:
    base = trained_base(world, "law", "code")
    for name in ("law", "code"):
        world.expert(name, name, base=base)
    told = left_after(world, "law", "code")
    assert told.startswith("Removing this expert is not unlearning: attention, embeddings and everything else")
    assert "was trained on “law”, too, and stays as it is" in told


def test_of_a_demix_expert_that_was_added_by_copying_nothing_stays(world: World) -> None:
    base = trained_base(world, "law", "code")
    parent = world.expert("law", "law", base=base)
    world.expert("sea", "sea", base=base, parent_id=parent.id)
    told = left_after(world, "sea", "law")
    assert told.startswith("All that this expert learned on “sea” is taken out with its feed-forward networks")
    assert "was frozen, and no training of it on “sea” is recorded" in told
    assert "not unlearning" not in told


def test_an_expert_that_was_added_on_a_domain_of_the_base_leaves_what_the_base_knows(world: World) -> None:
    base = trained_base(world, "law", "code")
    parent = world.expert("code", "code", base=base)
    world.expert("law again", "law", base=base, parent_id=parent.id)
    assert "not unlearning" in left_after(world, "law again", "code")


def test_of_a_whole_model_nothing_is_shared_and_what_began_from_it_is_named(world: World) -> None:
    elm = world.expert("law", "law", base=trained_base(world, "law", method="dense"), method="dense")
    world.expert("code", "code", base=trained_base(world, "code", method="dense"), method="dense")
    alone = left_after(world, "law", "code")
    assert alone == "No other expert of the mixture shares a parameter with this one: all of its model is taken out."
    adapted = trained_base(world, "sea", method="dense")
    adapted.job_id = jobs.create_job(world.session, TrainExpert(name="dapt", domain="sea", mixture="all", whole=True))
    world.expert("dapt/sea", "sea", base=adapted, method="dense", parent_id=elm.id)
    mixtures.add_member(world.session, "all", "dapt/sea")
    told = what_stays(world.session, "all", expert_row(world.session, "law"))
    assert told.startswith(alone)
    assert told.endswith("Still there and trained on “law”, or begun from what was: “dapt/sea”.")


def test_what_was_copied_onto_the_base_of_a_whole_adaptation_shares_what_that_learned(world: World) -> None:
    parent = world.expert("code", "code", base=trained_base(world, "code"))
    base = trained_base(world, "sea")
    base.job_id = jobs.create_job(world.session, TrainExpert(name="dapt", domain="sea", mixture="any", whole=True))
    whole = world.expert("dapt/sea", "sea", base=base, parent_id=parent.id, config={"whole": True})
    world.expert("law", "law", base=base, parent_id=whole.id)
    assert "trained on “sea”, too" in left_after(world, "dapt/sea", "law")
    mixtures.delete_mixture(world.session, "all")
    world.expert("more code", "code", base=base, parent_id=whole.id)
    assert "trained on “code”, too" in left_after(world, "more code", "law")  # by the base that this one is a copy of


def test_of_an_adapter_nothing_stays(world: World) -> None:
    for name in ("law", "code"):
        world.expert(name, name, method="lora", **seed_base(world))
    told = left_after(world, "law", "code")
    assert told.startswith(
        "All that this expert learned on “law” is taken out with its low-rank change: the seed model"
    )
    assert "before it was imported" not in told


def test_what_an_imported_seed_had_read_is_said_to_be_unknown(world: World) -> None:
    row = seeds.seed_row(world.session, "seed")
    row.source = "hub:someone/model"
    for name in ("law", "code"):
        world.expert(name, name, method="lora", **seed_base(world))
    assert "What “seed” had read before it was imported is not recorded." in left_after(world, "law", "code")


def test_of_a_domain_token_all_but_a_vector_stays(world: World) -> None:
    base = trained_base(world, "law", "code", method="domain-token")
    for name in ("law", "code"):
        world.expert(name, name, base=base, method="domain-token")
    told = left_after(world, "law", "code")
    assert told.startswith("Removing this expert is not unlearning: the whole model that reads it was trained on “law”")


def test_of_a_mixture_of_experts_that_is_one_model_nothing_is_shared(world: World) -> None:
    world.expert("law", "law", base=trained_base(world, "law", method="moe"), method="moe")
    world.expert("code", "code", base=trained_base(world, "code"))
    assert left_after(world, "law", "code").startswith("No other expert of the mixture shares a parameter")


def mode_expert(world: World, name: str, *domains: str, composed_of: tuple[Any, ...] = ()) -> Any:
    own = {"domain_id": None} if len(domains) > 1 else {}
    config = {
        "parts": [{"name": one, "domain": one, "domains": list(domains)} for one in domains],
        "composed_of": [{"id": one.id, "name": one.name} for one in composed_of],
        "domains": list(domains), "learning": "experts",
    }  # fmt: skip
    return world.expert(name, domains[0], method="mode", config=config, **own, **seed_base(world))


def test_of_an_expert_beside_a_backbone_nothing_stays(world: World) -> None:
    for name in ("law", "code"):
        mode_expert(world, name, name)
    told = left_after(world, "law", "code")
    assert told.startswith("All that this expert learned on “law” is taken out with its layers and gates: the backbone")


def test_a_composition_that_learned_together_is_named(world: World) -> None:
    parts = [mode_expert(world, name, name) for name in ("law", "code")]
    mode_expert(world, "composed", "law", "code", composed_of=tuple(parts))
    told = left_after(world, "law", "composed")
    assert "taken out with its layers and gates" in told
    assert told.endswith("Still there and trained on “law”, or begun from what was: “composed”.")


def test_a_backbone_that_is_a_copy_of_an_expert_knows_what_that_one_knew(world: World) -> None:
    dense = world.expert("dense", "law", base=trained_base(world, "law", method="dense"), method="dense")
    job = jobs.create_job(world.session, MakeSeed(name="copy", source="expert", expert="dense"))
    world.session.get_one(Job, job).result = {seeds.MADE_OF: dense.id}
    world.seed("copy")
    seeds.seed_row(world.session, "copy").job_id = job
    for name in ("law", "code"):
        world.expert(name, name, method="mode", **seed_base(world, "copy"))
    assert "the backbone beside them was trained on “law”, too" in left_after(world, "law", "code")


def test_what_nobody_recorded_is_not_claimed(world: World) -> None:
    base = world.artifact("demix-base")
    for name in ("law", "code"):
        world.expert(name, name, base=base)
    told = left_after(world, "law", "code")
    assert told.startswith("Whether removing this expert is unlearning is not known")
