"""Mixtures hold only what goes together."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event, select

from engine.errors import MixtureError
from engine.mixing.gates.cluster import ClusterGateConfig
from engine.mixing.gates.cluster_posterior import ClusterPosteriorGateConfig
from engine.mixing.gates.posterior import PosteriorGateConfig
from workbench.answers.cards import MixtureCard
from workbench.answers.posteriors import Manifest
from workbench.errors import BadSpecError, InUseError, NameTakenError, NotFoundError
from workbench.job_records import jobs
from workbench.kinds.analysis import Evaluate
from workbench.registry import corpora, experts, mixtures, priors
from workbench.requests.planning import plan
from workbench.schema.tables import Cluster, Clustering, Expert, MixtureMember
from workbench.specs.requests import MixtureRequest, MixtureSpec

if TYPE_CHECKING:
    from tests.workbench.conftest import World


def mix(world: World, *names: str, **job_spec: Any) -> MixtureCard:
    return mixtures.create_mixture(world.session, MixtureSpec(name="mix", experts=list(names), **job_spec))


def test_a_mixture_keeps_its_members_in_their_order(world: World) -> None:
    law, *_ = world.experts("law", "news", "code")
    card = mix(world, "code", "law", "news", weights=[0.5, 0.25, 0.25], gate=PosteriorGateConfig(top_k=2))
    assert [(member.expert, member.weight) for member in card.members] == [("code", 0.5), ("law", 0.25), ("news", 0.25)]
    assert (card.base_ids, card.gate["top_k"]) == ([law.base_id], 2)
    assert mixtures.list_mixtures(world.session) == [card] == [mixtures.get_mixture(world.session, "mix")]


def test_weights_are_equal_unless_given(world: World) -> None:
    world.experts("law", "news")
    assert [member.weight for member in mix(world, "law", "news").members] == [1.0, 1.0]


def test_a_copy_stays_as_the_mixture_was(world: World) -> None:
    world.experts("law", "news", "code")
    mix(world, "code", "law", "news", weights=[0.5, 0.25, 0.25], gate=PosteriorGateConfig(top_k=2))
    before = mixtures.set_active(world.session, "mix", "news", False)
    first, second = (mixtures.copy_mixture(world.session, "mix") for _ in range(2))
    assert (first.name, second.name) == ("mix.2", "mix.3")
    mixtures.arrange(world.session, "mix", ["news"], {"news": 9.0})
    mixtures.set_gate(world.session, "mix", PosteriorGateConfig(top_k=1))
    mixtures.remove_member(world.session, "mix", "law")
    kept = mixtures.get_mixture(world.session, "mix.2")
    assert (kept.members, kept.gate) == (before.members, before.gate)
    with pytest.raises(InUseError, match=r"mix\.2"):
        experts.delete_expert(world.session, "law")
    assert mixtures.copy_mixture(world.session, "mix", "best").members[0].expert == "code"
    for name, error in (("best", NameTakenError), ("a,b", BadSpecError), ("mix@best", BadSpecError)):
        with pytest.raises(error):
            mixtures.copy_mixture(world.session, "mix", name)


def test_incompatible_experts_do_not_mix_and_all_reasons_are_reported(world: World) -> None:
    world.experts("law", "news")
    world.expert("alien", "law", tokenizer_sha256="x" * 64)
    with pytest.raises(BadSpecError) as caught:
        mix(world, "law", "alien", "law", weights=[1.0, -1.0])
    assert caught.value.complaints == [
        "“law” is named twice.",
        "There are 2 weights for 3 experts: give one for each.",
        "The weight of “alien” must be a number of 0 or more, not -1.0.",
        "“alien” has another tokenizer than “law”.",
    ]
    assert mixtures.list_mixtures(world.session) == []


def test_a_tokenizer_of_the_same_base_must_be_the_same(world: World) -> None:
    law, *_ = world.experts("law")
    base = world.session.get_one(type(experts.expert_row(world.session, "law").base), law.base_id)
    world.expert("odd", "law", base=base, tokenizer_sha256="x" * 64)
    with pytest.raises(BadSpecError, match="“odd” has another tokenizer than “law”"):
        mix(world, "law", "odd")


def test_names_are_unique_and_known(world: World) -> None:
    world.experts("law")
    mix(world, "law")
    with pytest.raises(NameTakenError):
        mix(world, "law")
    with pytest.raises(NotFoundError, match="Known: mix"):
        mixtures.get_mixture(world.session, "max")
    with pytest.raises(NotFoundError, match="There is no expert called “lwa”"):
        mixtures.create_mixture(world.session, MixtureSpec(name="other", experts=["lwa"]))


def test_a_newcomer_weighs_as_much_as_the_others(world: World) -> None:
    world.experts("law", "news", "code")
    mix(world, "law", "news", weights=[0.2, 0.6])
    assert mixtures.add_member(world.session, "mix", "code").members[-1].weight == pytest.approx(0.4)
    with pytest.raises(NameTakenError):
        mixtures.add_member(world.session, "mix", "code")


def test_experts_of_several_bases_mix_when_they_share_a_tokenizer(world: World) -> None:
    law, *_ = world.experts("law", "news")
    elm = world.expert("elm", "law")
    mix(world, "law", "news")
    card = mixtures.add_member(world.session, "mix", "elm")
    assert card.base_ids == [law.base_id, elm.base_id]
    planned = plan(world.session, world.storage, "mix")
    assert [[expert.name for expert in experts] for experts in planned.by_base().values()] == [["law", "news"], ["elm"]]
    shown = Manifest.of(planned).experts
    assert shown[0].base_sha256 == shown[1].base_sha256 != shown[2].base_sha256
    assert planned.base.sha256 == shown[0].base_sha256


def test_a_request_reads_its_mixture_once(world: World) -> None:
    world.experts("law", "news", "code")
    mix(world, "law", "news", "code")
    priors.give_prior(world.session, "even", {"law": 0.5, "news": 0.5})
    world.session.flush()
    statements: list[str] = []

    def see(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        statements.append(statement)

    connection = world.session.connection()
    event.listen(connection, "before_cursor_execute", see)
    request = MixtureRequest("mix", active=["law", "news"], gate={"evidence": "last_token"}, prior="even")
    planned = plan(world.session, world.storage, request)
    assert sum("FROM mixtures" in statement for statement in statements) == 1
    assert [(expert.name, expert.weight) for expert in planned.experts] == [("law", 0.5), ("news", 0.5)]
    assert planned.gate == PosteriorGateConfig(evidence="last_token")


def test_an_incompatible_expert_cannot_join(world: World) -> None:
    world.experts("law")
    world.expert("alien", "law", tokenizer_sha256="x" * 64)
    mix(world, "law")
    with pytest.raises(BadSpecError, match="has another tokenizer"):
        mixtures.add_member(world.session, "mix", "alien")


def test_experts_whose_tokenizers_differ_are_never_planned_together(world: World) -> None:
    world.experts("law", "news")
    mix(world, "law", "news")
    row = experts.expert_row(world.session, "news")
    row.tokenizer_sha256 = "x" * 64  # as no service would write it
    with pytest.raises(MixtureError, match=r"“news” and “law” have different tokenizers.*Switch one of them off"):
        plan(world.session, world.storage, "mix")


@pytest.fixture
def clustered(world: World) -> str:
    """The id of a clustering of two clusters, made domains of; “law” and “news” are experts of them, “code” is not."""
    world.experts("law", "news", "code")
    domains = {domain.name: domain.id for domain in corpora.list_domains(world.session)}
    row = Clustering(
        name="topics",
        config={},
        sources=[],
        num_documents=4,
        num_fitted=2,
        artifact=world.artifact("clustering"),
        clusters=[
            Cluster(number=1 - n, name=name, num_documents=2, domain_id=domains[name])
            for n, name in enumerate(["law", "news"])
        ],
    )
    world.session.add(row)
    world.session.flush()
    return str(row.id)


def test_a_cluster_gate_knows_the_cluster_of_each_expert(world: World, clustered: str) -> None:
    mix(world, "news", "law", gate=ClusterGateConfig(clustering=clustered))
    route = plan(world.session, world.storage, "mix").route
    assert route is not None
    assert route.clusters == (0, 1)
    assert route.clustering.folder.is_dir()
    by_itself = plan(world.session, world.storage, MixtureRequest("mix", active=["law"]))
    assert by_itself.route is not None
    assert by_itself.route.clusters == (1,)
    other = plan(world.session, world.storage, MixtureRequest("mix", gate={"kind": "fixed"}))
    assert other.route is None


def test_experts_of_no_cluster_are_refused_in_a_cluster_gate(world: World, clustered: str) -> None:
    gate = ClusterGateConfig(clustering=clustered)
    with pytest.raises(BadSpecError, match="“code” cannot be weighed by nearness: it is not of a cluster of “topics”"):
        mix(world, "law", "code", gate=gate)
    mix(world, "law", "news", gate=gate)
    with pytest.raises(BadSpecError, match="“code” cannot be weighed by nearness"):
        mixtures.add_member(world.session, "mix", "code")
    mixtures.set_gate(world.session, "mix", PosteriorGateConfig())
    mixtures.add_member(world.session, "mix", "code")
    with pytest.raises(BadSpecError, match="“code” cannot be weighed by nearness"):
        mixtures.set_gate(world.session, "mix", gate)
    with pytest.raises(MixtureError, match="“code” cannot be weighed by nearness"):
        plan(world.session, world.storage, MixtureRequest("mix", gate=asdict(gate)))
    for odd, words in (
        (ClusterGateConfig(), "names no clustering"),
        (ClusterGateConfig(clustering="f" * 32), "names a clustering that does not exist"),
    ):
        with pytest.raises(MixtureError, match=words):
            plan(world.session, world.storage, MixtureRequest("mix", gate=asdict(odd)))


def test_a_posterior_with_nearness_as_its_prior_takes_experts_of_no_cluster_too(world: World, clustered: str) -> None:
    gate = ClusterPosteriorGateConfig(clustering=clustered)
    mix(world, "law", gate=gate)
    mixtures.add_member(world.session, "mix", "code")
    route = plan(world.session, world.storage, "mix").route
    assert route is not None
    assert route.clusters == (1, None)
    by_itself = plan(world.session, world.storage, MixtureRequest("mix", active=["code"]))
    assert by_itself.route is not None
    assert by_itself.route.clusters == (None,)
    with pytest.raises(BadSpecError, match="No expert can be weighed by nearness: none is of a cluster of “topics”"):
        mixtures.create_mixture(world.session, MixtureSpec(name="odd", experts=["code"], gate=gate))
    with pytest.raises(BadSpecError, match="names no clustering"):
        mixtures.set_gate(world.session, "mix", ClusterPosteriorGateConfig())


def test_members_leave_but_the_last(world: World) -> None:
    world.experts("law", "news")
    mix(world, "law", "news")
    assert [member.expert for member in mixtures.remove_member(world.session, "mix", "law").members] == ["news"]
    with pytest.raises(BadSpecError, match="is the last expert"):
        mixtures.remove_member(world.session, "mix", "news")
    with pytest.raises(NotFoundError, match="Known: news"):
        mixtures.remove_member(world.session, "mix", "law")


def test_switches_and_weights_belong_to_one_mixture(world: World) -> None:
    world.experts("law", "news")
    mix(world, "law", "news")
    other = mixtures.create_mixture(world.session, MixtureSpec(name="other", experts=["law", "news"]))
    mixtures.set_active(world.session, "mix", "law", False)
    card = mixtures.set_weight(world.session, "mix", "news", 3.0)
    assert [(member.active, member.weight) for member in card.members] == [(False, 1.0), (True, 3.0)]
    assert mixtures.get_mixture(world.session, "other") == other


@pytest.mark.parametrize("weight", [-0.1, math.nan, math.inf])
def test_a_weight_is_a_number_of_0_or_more(world: World, weight: float) -> None:
    world.experts("law")
    mix(world, "law")
    with pytest.raises(BadSpecError, match="must be a number of 0 or more"):
        mixtures.set_weight(world.session, "mix", "law", weight)


def test_a_disabled_expert_takes_part_nowhere(world: World) -> None:
    world.experts("law", "news")
    mix(world, "law", "news")
    experts.set_enabled(world.session, ["law"], False)
    assert [member.enabled for member in mixtures.get_mixture(world.session, "mix").members] == [False, True]
    assert [expert.name for expert in plan(world.session, world.storage, "mix").experts] == ["news"]


def test_the_gate_can_change(world: World) -> None:
    world.experts("law")
    mix(world, "law")
    card = mixtures.set_gate(world.session, "mix", PosteriorGateConfig(evidence="last_token"))
    assert card.gate["evidence"] == "last_token"
    assert mixtures.get_mixture(world.session, "mix") == card


def test_deleting_a_mixture_leaves_its_experts(world: World) -> None:
    world.experts("law", "news")
    mix(world, "law", "news")
    job = jobs.create_job(world.session, Evaluate(mixture="mix"))
    with pytest.raises(InUseError, match="job “Evaluate mix”"):
        mixtures.delete_mixture(world.session, "mix")
    jobs.request_stop(world.session, job, "cancel")
    mixtures.delete_mixture(world.session, "mix")
    assert world.session.scalars(select(MixtureMember)).all() == []
    assert len(experts.list_experts(world.session)) == 2


def test_a_mixture_keeps_an_active_expert(world: World) -> None:
    world.experts("law", "news")
    before = mix(world, "law", "news", weights=[1.0, 0.0])
    for active, weights in ([], {}), (["news"], {}), (["law", "news"], {"law": 0.0}):
        with pytest.raises(BadSpecError, match="would have no active expert"):
            mixtures.arrange(world.session, "mix", active, weights)
    assert mixtures.get_mixture(world.session, "mix") == before
    mixtures.arrange(world.session, "mix", ["news"], {"law": 0.0, "news": 2.0})
    for refused in (
        lambda: mixtures.set_active(world.session, "mix", "news", False),
        lambda: mixtures.set_weight(world.session, "mix", "news", 0.0),
        lambda: mixtures.remove_member(world.session, "mix", "news"),
    ):
        with pytest.raises(BadSpecError, match="would have no active expert"):
            refused()
    after = mixtures.get_mixture(world.session, "mix")
    assert [(member.active, member.weight) for member in after.members] == [(False, 0.0), (True, 2.0)]


@pytest.mark.parametrize("name", ["-x", "--on", ".", ".."])
def test_a_name_that_no_command_could_say_is_refused(world: World, name: str) -> None:
    world.experts("law")
    with pytest.raises(BadSpecError, match="must not begin with “-”"):
        mixtures.create_mixture(world.session, MixtureSpec(name=name, experts=["law"]))
    with pytest.raises(BadSpecError, match="must not begin with “-”"):
        experts.rename(world.session, "law", name)
    world.session.scalar(select(Expert).where(Expert.name == "law")).name = name  # type: ignore[union-attr]
    assert experts.rename(world.session, name, "law").name == "law"
