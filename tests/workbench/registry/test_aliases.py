"""Aliases mean one model until they are moved, and nothing that is stored holds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy.exc import IntegrityError

from workbench.answers.posteriors import Manifest
from workbench.errors import BadSpecError, InUseError, NoModelError, NotFoundError
from workbench.job_records.preconditions import without_aliases
from workbench.kinds.analysis import Evaluate
from workbench.kinds.training.exchange import ExportExpert
from workbench.registry import aliases, experts, mixtures
from workbench.requests.planning import plan
from workbench.schema.tables import Alias
from workbench.specs.requests import MixtureRequest, MixtureSpec

if TYPE_CHECKING:
    from tests.workbench.conftest import World

LIVE = "law@production"


def mix(world: World, *names: str, name: str = "mix") -> None:
    mixtures.create_mixture(world.session, MixtureSpec(name=name, experts=list(names)))


def test_an_alias_means_a_model_until_it_is_moved(world: World) -> None:
    world.experts("law", "law-2")
    card = aliases.set_alias(world.session, LIVE, "law")
    assert (card.name, card.model, card.kind) == (LIVE, "law", "expert")
    assert experts.get_expert(world.session, LIVE).name == "law"
    assert aliases.set_alias(world.session, LIVE, "law-2").model == "law-2"
    assert experts.get_expert(world.session, LIVE).name == "law-2"
    assert aliases.set_alias(world.session, "law@staging", LIVE).model == "law-2"
    assert [alias.name for alias in aliases.list_aliases(world.session)] == [LIVE, "law@staging"]
    aliases.delete_alias(world.session, LIVE)
    with pytest.raises(NotFoundError):
        experts.get_expert(world.session, LIVE)
    assert experts.get_expert(world.session, "law").name == "law"


def test_an_alias_moves_between_an_expert_and_a_mixture(world: World) -> None:
    world.experts("law", "news")
    mix(world, "law", "news")
    aliases.set_alias(world.session, LIVE, "law")
    assert aliases.set_alias(world.session, LIVE, "mix").kind == "mixture"
    assert mixtures.get_mixture(world.session, LIVE).name == "mix"
    with pytest.raises(NotFoundError):
        experts.get_expert(world.session, LIVE)


def test_an_answer_by_an_alias_names_the_model_itself(world: World) -> None:
    world.experts("law", "news")
    mix(world, "law", "news")
    aliases.set_alias(world.session, LIVE, "mix")
    by_alias = plan(world.session, world.storage, MixtureRequest(LIVE, active=["law"]))
    assert by_alias == plan(world.session, world.storage, MixtureRequest("mix", active=["law"]))
    assert Manifest.of(by_alias).model == "mix"
    with pytest.raises(NoModelError):
        plan(world.session, world.storage, "mix@nothing")


def test_a_mixture_of_aliases_holds_the_experts(world: World) -> None:
    world.experts("law", "law-2", "news")
    aliases.set_alias(world.session, LIVE, "law")
    mix(world, LIVE, "news")
    aliases.set_alias(world.session, LIVE, "law-2")
    assert [member.expert for member in mixtures.get_mixture(world.session, "mix").members] == ["law", "news"]


def test_a_job_has_the_names_of_the_models(world: World) -> None:
    world.experts("law", "news")
    mix(world, "law", "news")
    aliases.set_alias(world.session, LIVE, "law")
    aliases.set_alias(world.session, "mix@production", "mix")
    export = ExportExpert(expert=LIVE, folder="/tmp/law@production")
    assert without_aliases(world.session, export) == ExportExpert(expert="law", folder="/tmp/law@production")
    evaluate = Evaluate(mixture="mix@production", experts=["news", LIVE])
    assert without_aliases(world.session, evaluate) == Evaluate(mixture="mix", experts=["news", "law"])
    unknown = ExportExpert(expert="law@nothing", folder="/tmp/law")
    assert without_aliases(world.session, unknown) == unknown


def test_a_target_is_renamed_with_its_alias_and_not_deleted(world: World) -> None:
    world.experts("law", "news")
    mix(world, "news")
    aliases.set_alias(world.session, LIVE, "law")
    aliases.set_alias(world.session, "mix@production", "mix")
    experts.rename(world.session, "law", "statutes")
    assert aliases.get_alias(world.session, LIVE).model == "statutes"
    with pytest.raises(InUseError, match=LIVE):
        experts.delete_expert(world.session, "statutes")
    with pytest.raises(InUseError, match="mix@production"):
        mixtures.delete_mixture(world.session, "mix@production")
    for name in (LIVE, "mix@production"):
        aliases.delete_alias(world.session, name)
    experts.delete_expert(world.session, "statutes")
    mixtures.delete_mixture(world.session, "mix")


@pytest.mark.parametrize(
    "name",
    [
        "law",
        "@production",
        "law@",
        "law@latest",
        "law@2",
        "law@v2",
        "law@a b",
        "law@a/b",
        "-law@a",
        "a,b@c",
        "x" * 80 + "@a",
    ],
)
def test_a_name_that_can_be_no_alias_is_refused(world: World, name: str) -> None:
    world.experts("law")
    with pytest.raises(BadSpecError):
        aliases.set_alias(world.session, name, "law")


def test_an_unknown_model_leaves_an_alias_where_it_was(world: World) -> None:
    world.experts("law")
    aliases.set_alias(world.session, LIVE, "law")
    with pytest.raises(NoModelError):
        aliases.set_alias(world.session, LIVE, "nobody")
    assert aliases.get_alias(world.session, LIVE).model == "law"
    with pytest.raises(NotFoundError):
        aliases.delete_alias(world.session, "law@staging")


def test_new_models_cannot_have_the_name_of_an_alias_and_old_ones_keep_theirs(world: World) -> None:
    world.experts("law", "news")
    for make in (lambda: experts.rename(world.session, "law", LIVE), lambda: mix(world, "law", name=LIVE)):
        with pytest.raises(BadSpecError, match="alias"):
            make()
    experts.expert_row(world.session, "news").name = LIVE  # of before there were aliases
    with pytest.raises(BadSpecError, match="already"):
        aliases.set_alias(world.session, LIVE, "law")
    world.session.add(Alias(name=LIVE, expert_id=experts.expert_row(world.session, "law").id))
    world.session.flush()
    assert experts.get_expert(world.session, LIVE).name == LIVE
    assert aliases.model_name(world.session, LIVE) == LIVE


def test_an_alias_means_one_thing(world: World) -> None:
    world.experts("law")
    world.session.add(Alias(name=LIVE))
    with pytest.raises(IntegrityError):
        world.session.flush()
