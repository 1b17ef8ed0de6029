"""What a removal leaves behind of a domain: the sentence of each method is true of what the registry knows."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from sqlalchemy import event

from engine.errors import MixtureError
from tests.workbench.conftest import World
from workbench.analysis.changes.retrained_baselines import (
    OF_BASE,
    OWN,
    candidates,
    retrained_without,
    sources_of,
    what_stays,
)
from workbench.job_records import jobs
from workbench.kinds.training.make_seed import MakeSeed
from workbench.kinds.training.train_expert import TrainExpert
from workbench.kinds.training.train_joint import TrainJoint
from workbench.registry import corpora, mixtures, seeds
from workbench.registry.experts import expert_row
from workbench.schema.job_tables import Job
from workbench.schema.tables import Artifact
from workbench.specs.requests import MixtureSpec


@pytest.fixture
def world(world: World) -> World:
    """Text of three domains and a fresh seed model."""
    world.corpus("texts", "law", "code", "sea")
    world.seed()
    return world


def trained_base(world: World, *domains: str, method: Any = "demix") -> Artifact:
    """A base that a training of these domains made."""
    base = world.artifact("demix-base")
    spec = TrainJoint(name=f"on {' '.join(domains)}", seed_model="seed", domains=list(domains), method=method)
    base.job_id = jobs.create_job(world.session, spec)
    return base


def renamed(world: World, name: str, new: str) -> None:
    """A domain under another name, as a rebuild gives it where its own is taken."""
    corpora.domain_row(world.session, name).name = new
    world.session.flush()


def shown_sources(world: World, *domains: str) -> list[dict[str, Any]]:
    ids = [corpora.domain_row(world.session, name).id for name in domains]
    return [asdict(source) for source in sources_of(world.session, ids)]


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
    shown = left_after(world, "law", "code")
    assert shown.startswith("Removing this expert is not unlearning: attention, embeddings and everything else")
    assert "was also trained on “law” and stays unchanged" in shown


def test_of_a_demix_expert_that_was_added_by_copying_nothing_stays(world: World) -> None:
    base = trained_base(world, "law", "code")
    parent = world.expert("law", "law", base=base)
    world.expert("sea", "sea", base=base, parent_id=parent.id)
    shown = left_after(world, "sea", "law")
    assert shown.startswith("All that this expert learned on “sea” is removed with its feed-forward networks")
    assert "was frozen, and no training of it on “sea” is recorded" in shown
    assert "not unlearning" not in shown


def test_an_expert_that_was_added_on_a_domain_of_the_base_leaves_what_the_base_knows(world: World) -> None:
    base = trained_base(world, "law", "code")
    parent = world.expert("code", "code", base=base)
    world.expert("law again", "law", base=base, parent_id=parent.id)
    assert "not unlearning" in left_after(world, "law again", "code")


def test_of_a_full_model_nothing_is_shared_and_what_started_from_it_is_named(world: World) -> None:
    elm = world.expert("law", "law", base=trained_base(world, "law", method="dense"), method="dense")
    world.expert("code", "code", base=trained_base(world, "code", method="dense"), method="dense")
    by_itself = left_after(world, "law", "code")
    assert by_itself == "No other expert of the mixture shares a parameter with this one: its full model is removed."
    adapted = trained_base(world, "sea", method="dense")
    adapted.job_id = jobs.create_job(
        world.session, TrainExpert(name="dapt", domain="sea", mixture="all", full_model=True)
    )
    world.expert("dapt/sea", "sea", base=adapted, method="dense", parent_id=elm.id)
    mixtures.add_member(world.session, "all", "dapt/sea")
    shown = what_stays(world.session, "all", expert_row(world.session, "law"))
    assert shown.startswith(by_itself)
    assert shown.endswith("Remaining experts trained on “law”, or started from one that was: “dapt/sea”.")


def test_what_was_copied_onto_the_base_of_a_full_adaptation_shares_what_that_learned(world: World) -> None:
    parent = world.expert("code", "code", base=trained_base(world, "code"))
    base = trained_base(world, "sea")
    base.job_id = jobs.create_job(world.session, TrainExpert(name="dapt", domain="sea", mixture="any", full_model=True))
    full = world.expert("dapt/sea", "sea", base=base, parent_id=parent.id, config={"full_model": True})
    world.expert("law", "law", base=base, parent_id=full.id)
    assert "also trained on “sea”" in left_after(world, "dapt/sea", "law")
    mixtures.delete_mixture(world.session, "all")
    world.expert("more code", "code", base=base, parent_id=full.id)
    assert "also trained on “code”" in left_after(world, "more code", "law")  # by the base that this one is a copy of


def test_of_an_adapter_nothing_stays(world: World) -> None:
    for name in ("law", "code"):
        world.expert(name, name, method="lora", **seed_base(world))
    shown = left_after(world, "law", "code")
    assert shown.startswith("All that this expert learned on “law” is removed with its low-rank change: the seed model")
    assert "before it was imported" not in shown


@pytest.mark.parametrize("source", ["hub:someone/model", "folder:/m", "file:/m.gguf", "package:m==1", "packed"])
def test_what_an_imported_seed_had_read_is_reported_as_unknown(world: World, source: str) -> None:
    row = seeds.seed_row(world.session, "seed")
    row.source = source
    for name in ("law", "code"):
        world.expert(name, name, method="lora", **seed_base(world))
    assert "What “seed” had read before it was imported is not recorded." in left_after(world, "law", "code")


def test_of_a_seed_copied_from_an_unknown_one_nothing_is_claimed(world: World) -> None:
    row = seeds.seed_row(world.session, "seed")
    row.source = "expert:gone"
    for name in ("law", "code"):
        world.expert(name, name, method="lora", **seed_base(world))
    assert left_after(world, "law", "code").startswith("It is not known whether removing this expert is unlearning")


def test_of_a_domain_token_all_but_a_vector_stays(world: World) -> None:
    base = trained_base(world, "law", "code", method="domain-token")
    for name in ("law", "code"):
        world.expert(name, name, base=base, method="domain-token")
    shown = left_after(world, "law", "code")
    assert shown.startswith("Removing this expert is not unlearning: the whole model that reads it was also trained")


def test_of_a_mixture_of_experts_that_is_one_model_nothing_is_shared(world: World) -> None:
    world.expert("law", "law", base=trained_base(world, "law", method="moe"), method="moe")
    world.expert("code", "code", base=trained_base(world, "code"))
    assert left_after(world, "law", "code").startswith("No other expert of the mixture shares a parameter")


def mode_expert(world: World, name: str, *domains: str, composed_of: tuple[Any, ...] = ()) -> Any:
    own = {"domain_id": None} if len(domains) > 1 else {}
    config = {
        "parts": [{"name": domain, "domain": domain, "domains": list(domains)} for domain in domains],
        "composed_of": [{"id": one.id, "name": one.name} for one in composed_of],
        "domains": list(domains),
        "learning": "experts",
    }
    return world.expert(name, domains[0], method="mode", config=config, **own, **seed_base(world))


def test_of_an_expert_beside_a_backbone_nothing_stays(world: World) -> None:
    for name in ("law", "code"):
        mode_expert(world, name, name)
    shown = left_after(world, "law", "code")
    assert shown.startswith("All that this expert learned on “law” is removed with its layers and gates: the backbone")


def test_a_composition_that_learned_together_is_named(world: World) -> None:
    parts = [mode_expert(world, name, name) for name in ("law", "code")]
    mode_expert(world, "composed", "law", "code", composed_of=tuple(parts))
    shown = left_after(world, "law", "composed")
    assert "removed with its layers and gates" in shown
    assert shown.endswith("Remaining experts trained on “law”, or started from one that was: “composed”.")


def test_a_backbone_that_is_a_copy_of_an_expert_knows_what_that_one_knew(world: World) -> None:
    dense = world.expert("dense", "law", base=trained_base(world, "law", method="dense"), method="dense")
    job = jobs.create_job(world.session, MakeSeed(name="copy", source="expert", expert="dense"))
    world.session.get_one(Job, job).result = {seeds.MADE_OF: dense.id}
    world.seed("copy")
    seeds.seed_row(world.session, "copy").job_id = job
    for name in ("law", "code"):
        world.expert(name, name, method="mode", **seed_base(world, "copy"))
    assert "the backbone next to them was also trained on “law”" in left_after(world, "law", "code")


def test_what_nobody_recorded_is_not_claimed(world: World) -> None:
    base = world.artifact("demix-base")
    for name in ("law", "code"):
        world.expert(name, name, base=base)
    shown = left_after(world, "law", "code")
    assert shown.startswith("It is not known whether removing this expert is unlearning")


# domains that are called otherwise by now -------------------------------------------------------------


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "of the version before"])
def test_a_domain_that_was_renamed_is_still_what_the_shared_parameters_know(world: World, kept: bool) -> None:
    base = trained_base(world, "law", "code")
    config = {OF_BASE: shown_sources(world, "law", "code")} if kept else {}
    for name in ("law", "code"):
        world.expert(name, name, base=base, job_id=base.job_id, config=config)
    renamed(world, "law", "law.2")
    assert "not unlearning" in left_after(world, "law", "code")
    mixtures.create_mixture(world.session, MixtureSpec(name="rest", experts=["code"]))
    assert candidates(world.session, "law") == []


def test_the_experts_of_all_mixtures_are_read_at_once(world: World) -> None:
    base = trained_base(world, "law", "code", "sea")
    for number in range(6):
        world.expert(f"law {number}", "law", base=base, job_id=base.job_id)
        mixtures.create_mixture(world.session, MixtureSpec(name=f"mix {number}", experts=[f"law {number}"]))
    world.session.flush()
    world.session.expunge_all()
    statements: list[str] = []
    connection = world.session.connection()
    event.listen(connection, "before_cursor_execute", lambda *shown: statements.append(shown[2]))
    assert candidates(world.session, "law 0") == []
    assert len(statements) <= 4  # the expert, the mixtures, their members with the experts, a corpus


def test_what_a_base_knows_is_kept_by_each_of_its_experts_when_its_job_is_lost(world: World) -> None:
    base = world.artifact("demix-base")
    config = {OF_BASE: shown_sources(world, "law", "code")}
    parent = world.expert("code", "code", base=base, config=config)
    for name in ("law", "sea"):
        world.expert(name, name, base=base, parent_id=parent.id)
    renamed(world, "law", "law.2")
    assert "not unlearning" in left_after(world, "law", "code")
    mixtures.delete_mixture(world.session, "all")
    assert left_after(world, "sea", "code").startswith("All that this expert learned on “sea” is removed")


def test_a_name_that_no_domain_has_any_more_reports_nothing(world: World) -> None:
    base = trained_base(world, "law", "code")
    parent = world.expert("code", "code", base=base, job_id=base.job_id)
    renamed(world, "law", "law.2")
    world.expert("more law", "law.2", base=base, parent_id=parent.id)
    shown = left_after(world, "more law", "code")
    assert shown.startswith("It is not known whether removing this expert is unlearning")
    assert shown.endswith("stays, and which text “law” was is not recorded.")


def test_a_domain_that_was_imported_anew_is_not_the_one_that_had_its_name(world: World) -> None:
    base = trained_base(world, "law", "code")
    parent = world.expert("code", "code", base=base, job_id=base.job_id)
    law = corpora.domain_row(world.session, "law")
    world.session.get_one(Job, base.job_id).finished_at = law.created_at - 1
    world.expert("more law", "law", base=base, parent_id=parent.id)
    assert left_after(world, "more law", "code").startswith(
        "It is not known whether removing this expert is unlearning"
    )


def test_a_text_with_the_name_of_one_that_was_renamed_is_not_taken_for_it(world: World) -> None:
    base = trained_base(world, "law", "code")
    parent = world.expert("code", "code", base=base, job_id=base.job_id)
    world.expert("law", "law", base=base, job_id=base.job_id)
    renamed(world, "law", "law.2")
    renamed(world, "sea", "law")
    world.expert("sea", "law", base=base, parent_id=parent.id)
    assert left_after(world, "sea", "code").startswith("All that this expert learned on “law” is removed")


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "of the version before"])
def test_an_expert_of_several_domains_is_identified_by_their_text(world: World, kept: bool) -> None:
    names = ["law", "code"]
    config = {"domains": names, **({OWN: shown_sources(world, *names)} if kept else {})}
    dense = trained_base(world, *names, method="dense")
    world.expert("both", "law", base=dense, method="dense", domain_id=None, config=config)
    renamed(world, "law", "law.2")
    world.expert("law", "law.2", base=trained_base(world, "law.2", method="dense"), method="dense")
    shown = left_after(world, "law", "both")
    unknown = "may have been trained on “law.2”: “both”."
    claim = "trained on “law.2”, or started from one that was: “both”." if kept else unknown
    assert shown.endswith(claim)
    mixtures.create_mixture(world.session, MixtureSpec(name="rest", experts=["both"]))
    with pytest.raises(MixtureError, match="has seen it, as “law”" if kept else "it is not known whether “both”"):
        retrained_without(world.session, "rest", expert_row(world.session, "law"))


def test_what_an_imported_seed_of_the_remaining_full_models_had_read_is_reported_as_unknown(world: World) -> None:
    row = seeds.seed_row(world.session, "seed")
    row.source = "folder:/models/some"
    for name in ("law", "code"):
        base = trained_base(world, name, method="dense")
        world.expert(name, name, base=base, method="dense", seed_id=row.id)
    shown = left_after(world, "law", "code")
    assert shown.startswith("No other expert of the mixture shares a parameter with this one")
    assert shown.endswith("What “seed” had read before it was imported is not recorded.")
