"""MoDE's replication is a plan whose arms all begin from one backbone, which never saw the targets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from workbench.errors import BadSpecError
from workbench.job_records import jobs
from workbench.kinds.data import ImportCorpus
from workbench.kinds.training.mode import ComposeMode, TrainMode
from workbench.kinds.training.train_joint import TrainJoint
from workbench.registry.database import transaction
from workbench.schema.job_tables import Job
from workbench_studies.core.spec import Replicate
from workbench_studies.mode.arms import SIZES, ReplicateMode, roles
from workbench_studies.papers.catalog import plan
from workbench_studies.running.submission import new_spec, submit_replication, with_fields

pytestmark = pytest.mark.usefixtures("home")
DOMAINS = ["books", "cs", "law", "wiki"]


@pytest.fixture
def job_spec() -> ReplicateMode:
    """Of domains that are on their way."""
    with transaction() as session:
        for name in (*DOMAINS, "tweets"):
            jobs.create_job(session, ImportCorpus(name=name, path=f"/text/{name}"))
    result = new_spec("mode", "rep", "smoke", 2, domains=DOMAINS, novel=["tweets"])
    assert isinstance(result, ReplicateMode)
    return result


def test_the_backbone_never_saw_the_targets_and_all_arms_begin_from_its_copy(job_spec: ReplicateMode) -> None:
    assert (job_spec.targets, job_spec.retention) == (["cs", "law"], "books")
    trained = [step.spec for step in plan(job_spec) if isinstance(step.spec, TrainJoint | TrainMode)]
    of_backbone = [one for one in trained if one.seed_model in ("rep-s0", "rep-s1")]
    assert [(one.seed_model, one.domains) for one in of_backbone] == [("rep-s0", ["books", "wiki"])]
    others = [one for one in trained if one not in of_backbone]
    assert {(one.seed_model, one.training.seed) for one in others} == {("rep-s0-backbone", 0), ("rep-s0-backbone", 1)}
    assert all(set(one.domains) <= {"cs", "law"} for one in others)


@pytest.mark.parametrize("option", ["shared_backbone", "own_starts"])
def test_a_replication_started_before_an_option_was_there_continues_without_it(
    job_spec: ReplicateMode, option: str
) -> None:
    ids = submit_replication(with_fields(job_spec, budget=replace(job_spec.budget, **{option: False})))
    with transaction() as session:
        job = session.get_one(Job, ids[-1])
        kept = {name: shown for name, shown in job.spec["budget"].items() if name != option}
        job.spec = {**job.spec, "budget": kept}
    again = new_spec("mode", "rep", "smoke", 2, domains=DOMAINS, novel=["tweets"])
    trained = [step.spec for step in plan(again) if isinstance(step.spec, TrainJoint | TrainMode)]
    pairs = {(one.seed_model, one.training.seed) for one in trained if one.seed_model.endswith("-backbone")}
    backbones = (0, 1) if option == "shared_backbone" else (0, 0)
    assert pairs == {(f"rep-s{backbones[seed]}-backbone", seed) for seed in range(2)}
    assert (set(starts_of(again)) == {0, 1, 2}) is (option == "own_starts")
    assert submit_replication(again) == ids


@pytest.mark.parametrize("size", SIZES)
def test_all_trainings_have_equal_batches_and_as_many_steps_but_those_that_are_about_steps(size: str) -> None:
    budget = SIZES[size]  # type: ignore[index]
    job_spec = new_spec("mode", "rep", size, 1, domains=DOMAINS, novel=[])  # type: ignore[arg-type]
    steps: list[int] = []
    for step in plan(job_spec):
        match step.spec:
            case TrainJoint(seed_model="rep-s0-backbone") | TrainMode() | ComposeMode():
                training = step.spec.training
                batch = training.sequences_per_domain * len(step.spec.domains)
                assert batch == 2 * budget.training.sequences_per_domain
                steps.append(training.num_steps)
    assert set(steps) == {budget.training.num_steps, budget.longer * budget.training.num_steps}
    assert steps.count(budget.longer * budget.training.num_steps) == 3


@pytest.mark.parametrize("size", SIZES)
def test_no_two_trainings_of_a_new_replication_start_alike(size: str) -> None:
    job_spec = new_spec("mode", "rep", size, 20, domains=DOMAINS, novel=[])  # type: ignore[arg-type]
    starts = starts_of(job_spec)
    assert len(set(starts)) == len(starts) > 20


def starts_of(job_spec: Replicate) -> list[int]:
    """The seeds of all experts that start at random."""
    specs = [
        step.spec for step in plan(job_spec) if isinstance(step.spec, TrainMode) and step.spec.shape.init == "random"
    ]
    return [spec.shape.seed + number for spec in specs for number in range(spec.num_parts)]


def test_roles_are_those_named_or_the_first_ones() -> None:
    assert roles(DOMAINS) == {"targets": ["cs", "law"], "retention": "books"}
    assert roles(DOMAINS, ["books", "wiki"]) == {"targets": ["books", "wiki"], "retention": "cs"}
    assert roles(DOMAINS, retention="law") == {"targets": ["books", "cs"], "retention": "law"}


@pytest.mark.parametrize(
    "fields", [{"targets": ["cs", "books"]}, {"targets": ["cs", "tweets"]}, {"targets": ["cs", "cs"]}]
)
def test_targets_that_are_no_two_other_training_domains_are_refused(
    job_spec: ReplicateMode, fields: dict[str, list[str]]
) -> None:
    with pytest.raises(BadSpecError, match=r"two targets and another domain to retain.*books, cs, law, wiki"):
        with_fields(job_spec, **fields)


def test_two_domains_are_too_few() -> None:
    with pytest.raises(BadSpecError, match="targets: must have at least 2 entries, not 1"):
        new_spec("mode", "rep", "smoke", 1, domains=DOMAINS[:2], novel=[])


def test_everything_it_makes_has_a_name_of_its_list(job_spec: ReplicateMode) -> None:
    names = [step.spec.model_dump().get("name", "") for step in plan(job_spec)]
    assert set(job_spec.names()) >= {name for name in names if name.startswith("rep-")}
