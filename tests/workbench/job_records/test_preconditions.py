"""A spec that cannot be run is refused at the click, with every reason."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest
from sqlalchemy.orm import Session

from engine.config import AdaptingConfig, TrainingConfig
from workbench.errors import BadSpecError
from workbench.job_records.jobs import create_job
from workbench.job_records.preconditions import validate_against_registry
from workbench.kinds.analysis import Classify, Evaluate, MeasureOverlap
from workbench.kinds.clusters import ClusterPart, FindClusters, MakeClusterDomains, MergeClusters
from workbench.kinds.data import ImportCorpus
from workbench.kinds.training.make_seed import MakeSeed
from workbench.kinds.training.mixtures import MakeMixture
from workbench.kinds.training.mode import TrainMode
from workbench.kinds.training.train_expert import TrainExpert
from workbench.kinds.training.train_joint import TrainJoint
from workbench.registry import mixtures
from workbench.schema.tables import Corpus, SeedModel
from workbench.specs.base import Spec
from workbench.specs.requests import MixtureSpec

if TYPE_CHECKING:
    from tests.workbench.conftest import World

HERE = __file__  # a path that leads somewhere


def chain() -> list[Spec]:
    """From nothing to an evaluated mixture: each spec needs those before it."""
    return [
        ImportCorpus(name="law", path=HERE),
        MakeSeed(name="seed", domains=["law"]),
        TrainJoint(name="one", seed_model="seed", domains=["law"]),
        TrainExpert(name="second", domain="law", mixture="one", parent="one/law"),
        Evaluate(mixture="one", domains=["law"]),
        MeasureOverlap(domains=["law", "sea"]),
        Classify(mixture="one", path=HERE, experts=["second"]),
    ]


def test_a_chain_is_accepted_because_each_needs_only_what_is_coming(session: Session) -> None:
    create_job(session, ImportCorpus(name="sea", path=HERE))
    for spec in chain():
        validate_against_registry(session, spec)
        create_job(session, spec)


@pytest.mark.parametrize("number", range(1, 7))
def test_a_spec_without_what_it_needs_is_refused_with_the_names(session: Session, number: int) -> None:
    with pytest.raises(BadSpecError, match=r"There is no .* called “"):
        validate_against_registry(session, chain()[number])


@pytest.mark.parametrize("number", range(4))
def test_a_name_that_a_queued_job_will_take_is_taken(session: Session, number: int) -> None:
    for spec in chain():
        create_job(session, spec)
    with pytest.raises(BadSpecError, match="exists already"):
        validate_against_registry(session, chain()[number])


def test_a_full_model_takes_a_mixtures_name_and_names_its_expert_after_the_domain(session: Session) -> None:
    for spec in [*chain(), TrainExpert(name="dapt", domain="law", mixture="one", full_model=True)]:
        create_job(session, spec)
    validate_against_registry(session, Evaluate(mixture="dapt"))
    validate_against_registry(session, TrainExpert(name="third", domain="law", mixture="dapt", parent="dapt/law"))
    with pytest.raises(BadSpecError, match="A mixture called “dapt” exists already"):
        validate_against_registry(session, TrainJoint(name="dapt", seed_model="seed", domains=["law"]))


def test_a_plan_of_clusters_is_accepted_step_by_step(session: Session) -> None:
    steps: list[Spec] = [
        ImportCorpus(name="law", path=HERE),
        FindClusters(name="topics", domains=["law"]),
        ClusterPart(name="topics", domains=["law"]),
        MakeClusterDomains(clustering="topics", domains=["topics/0"]),
        MakeSeed(name="seed", domains=["law"]),
        TrainJoint(name="m/0", seed_model="seed", domains=["topics/0"], method="dense"),
        MakeMixture(name="m", experts=["m/0/dense"]),
        MakeMixture(name="m", experts=["m/0/dense"], replace=True),
    ]
    for spec in steps:
        validate_against_registry(session, spec)
        create_job(session, spec)
    with pytest.raises(BadSpecError, match="A mixture called “m” exists already"):
        validate_against_registry(session, MakeMixture(name="m", experts=["m/0/dense"]))
    with pytest.raises(BadSpecError, match="A clustering called “topics” exists already"):
        validate_against_registry(session, FindClusters(name="topics", domains=["law"]))
    with pytest.raises(BadSpecError, match="There is no clustering called “moon”"):
        validate_against_registry(session, MergeClusters(clustering="moon", clusters=["0", "1"]))
    with pytest.raises(BadSpecError, match="There is no seed model called “moon”"):
        validate_against_registry(session, FindClusters(name="x", embedder="hidden_states", seed_model="moon"))


def test_all_complaints_come_together(session: Session) -> None:
    with pytest.raises(BadSpecError) as caught:
        validate_against_registry(session, TrainJoint(name="m", seed_model="no-seed", domains=["x", "y"]))
    assert len(caught.value.complaints) == 3


def test_a_name_in_the_registry_is_taken_and_one_of_a_failed_job_is_free(session: Session) -> None:
    session.add(Corpus(name="law", source=""))
    session.flush()
    with pytest.raises(BadSpecError, match="A corpus called “law” exists already") as refused:
        validate_against_registry(session, ImportCorpus(name="law", path=HERE))
    assert refused.value.next_step == "Choose another name, or continue with what exists."
    validate_against_registry(session, ImportCorpus(name="sea", path=HERE))


def test_domains_that_an_import_will_name_itself_may_be_counted_on(session: Session) -> None:
    create_job(session, ImportCorpus(name="many", path=HERE, domain_field="kind"))
    validate_against_registry(session, MakeSeed(name="seed", domains=["whatever"]))


def test_a_name_that_would_be_an_option_is_refused_before_the_work(session: Session) -> None:
    create_job(session, MakeSeed(name="seed", domains=["law"]))
    with pytest.raises(BadSpecError, match="“-one” cannot be the name of a new mixture") as caught:
        validate_against_registry(session, TrainJoint(name="-one", seed_model="seed", domains=["law", "sea"]))
    assert sum("cannot be the name" in one for one in caught.value.complaints) == 1


@pytest.mark.parametrize(
    "job_spec",
    [
        ImportCorpus(name="law", path="nowhere.txt"),
        MakeSeed(name="seed", source="folder", location="nowhere.txt"),
        Classify(mixture="one", path="nowhere.txt"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused_before_the_work(session: Session, job_spec: Spec) -> None:
    create_job(session, TrainJoint(name="one", seed_model="seed", domains=["law"]))
    with pytest.raises(BadSpecError, match=r"no file or folder at .*nowhere\.txt"):
        validate_against_registry(session, job_spec)


def test_no_part_may_be_called_what_it_stands_beside(session: Session) -> None:
    for job_spec in (ImportCorpus(name="backbone", path=HERE), ImportCorpus(name="law", path=HERE)):
        create_job(session, job_spec)
    create_job(session, MakeSeed(name="seed", domains=["law"]))
    by_itself = TrainMode(name="mode", seed_model="seed", domains=["backbone"])
    with pytest.raises(BadSpecError, match="“backbone” is the backbone's name"):
        validate_against_registry(session, by_itself)
    for parts in ({"domains": ["backbone", "law"]}, {"num_parts": 2, "shape": {"init": "random"}}):
        validate_against_registry(session, TrainMode.model_validate({**by_itself.model_dump(), **parts}))


@pytest.mark.parametrize("key", ["max_position_embeddings", "n_positions"])
def test_blocks_longer_than_the_context_of_the_model_are_refused(world: World, key: str) -> None:
    shape = {"num_hidden_layers": 4, "hidden_size": 8, "vocab_size": 9, "model_type": "llama", "intermediate_size": 8}
    seed = world.session.get_one(SeedModel, world.seed("seed").id)
    seed.config = shape | {key: 64}
    world.corpus("law")
    expert = world.expert("one/law", "law", seed_id=seed.id)
    mixtures.create_mixture(world.session, MixtureSpec(name="one", experts=[expert.name]))
    for block_size in (64, 65):
        training = TrainingConfig(block_size=block_size)
        specs = [
            TrainJoint(name="two", seed_model="seed", domains=["law"], training=training),
            TrainExpert(name="second", domain="law", mixture="one", training=AdaptingConfig(block_size=block_size)),
            TrainMode(name="three", seed_model="seed", domains=["law"], training=training),
        ]
        for spec in specs:
            with nullcontext() if block_size == 64 else pytest.raises(BadSpecError, match="at most 64, the context of"):
                validate_against_registry(world.session, spec)
