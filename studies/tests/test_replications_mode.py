"""MoDE's replication is a plan whose arms all begin from one backbone, which never saw the targets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from workbench.errors import BadSpecError
from workbench.job_records import jobs
from workbench.kinds.data import ImportCorpus
from workbench.kinds.training.compose_mode import ComposeMode
from workbench.kinds.training.train_joint import TrainJoint
from workbench.kinds.training.train_mode import TrainMode
from workbench.registry.database import reading, transaction
from workbench.schema.tables import Job
from workbench_studies.core.spec import Replicate
from workbench_studies.mode.arms import SIZES, ReplicateMode
from workbench_studies.mode.names import ModeRun, roles
from workbench_studies.papers.catalog import plan
from workbench_studies.running.submission import changed, jobs_of, spec_for_domains, submit_replication

pytestmark = pytest.mark.usefixtures("home")
DOMAINS = ["books", "cs", "law", "wiki"]


@pytest.fixture
def job_spec() -> ReplicateMode:
    """Of domains that are on their way."""
    with transaction() as session:
        for name in (*DOMAINS, "tweets"):
            jobs.create_job(session, ImportCorpus(name=name, path=f"/text/{name}"))
    result = spec_for_domains(DOMAINS, ["tweets"], "rep", "smoke", 2, paper="mode")
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


def test_a_replication_started_with_a_backbone_per_seed_continues_with_them(job_spec: ReplicateMode) -> None:
    started = changed(job_spec, budget=replace(job_spec.budget, shared_backbone=False))
    ids = submit_replication(started)
    with transaction() as session:
        job = session.get_one(Job, ids[-1])
        kept = {name: shown for name, shown in job.spec["budget"].items() if name != "shared_backbone"}
        job.spec = {**job.spec, "budget": kept}
    again = spec_for_domains(DOMAINS, ["tweets"], "rep", "smoke", 2, paper="mode")
    trained = [step.spec for step in plan(again) if isinstance(step.spec, TrainJoint | TrainMode)]
    assert {(one.seed_model, one.training.seed) for one in trained} == {
        (f"rep-s{seed}{of}", seed) for seed in range(2) for of in ("", "-backbone")
    }
    assert submit_replication(again) == ids


@pytest.mark.parametrize("size", SIZES)
def test_all_trainings_have_equal_batches_and_as_many_steps_but_those_that_are_about_steps(size: str) -> None:
    budget = SIZES[size]  # type: ignore[index]
    job_spec = spec_for_domains(DOMAINS, [], "rep", size, 1, paper="mode")  # type: ignore[arg-type]
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


def test_asking_again_adds_no_job_and_more_seeds_keep_those_there_are(job_spec: ReplicateMode) -> None:
    first = submit_replication(job_spec)
    assert submit_replication(job_spec) == first
    more = submit_replication(changed(job_spec, seeds=3))
    assert set(first[:-1]) < set(more)
    with reading() as session:
        assert len(jobs_of(session, job_spec)) == len(first)


@pytest.mark.parametrize("size", SIZES)
def test_no_two_trainings_of_a_new_replication_start_alike(size: str) -> None:
    job_spec = spec_for_domains(DOMAINS, [], "rep", size, 20, paper="mode")  # type: ignore[arg-type]
    starts = starts_of(job_spec)
    assert len(set(starts)) == len(starts) > 20


def starts_of(job_spec: Replicate) -> list[int]:
    """The seeds of all experts that start at random."""
    specs = [
        step.spec for step in plan(job_spec) if isinstance(step.spec, TrainMode) and step.spec.shape.init == "random"
    ]
    return [spec.shape.seed + number for spec in specs for number in range(spec.num_parts)]


def test_a_replication_started_with_shared_starts_continues_with_them(job_spec: ReplicateMode) -> None:
    started = changed(job_spec, budget=replace(job_spec.budget, own_starts=False))
    ids = submit_replication(started)
    with transaction() as session:
        job = session.get_one(Job, ids[-1])
        budget = {name: shown for name, shown in job.spec["budget"].items() if name != "own_starts"}  # as it was kept
        job.spec = {**job.spec, "budget": budget}
    again = spec_for_domains(DOMAINS, ["tweets"], "rep", "smoke", 2, paper="mode")
    assert set(starts_of(again)) == {0, 1, 2}
    assert submit_replication(again) == ids


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
        changed(job_spec, **fields)


def test_two_domains_are_too_few() -> None:
    with pytest.raises(BadSpecError, match="targets: give at least 2, not 1"):
        spec_for_domains(DOMAINS[:2], [], "rep", "smoke", 1, paper="mode")


def test_a_name_too_long_for_what_it_makes_is_refused_with_the_name(job_spec: ReplicateMode) -> None:
    longest = max(map(len, ModeRun("", 0).names([])))
    assert longest < 30
    with pytest.raises(BadSpecError, match=r"at most 80 characters, but “.*” would have"):
        spec_for_domains(DOMAINS, [], "r" * 65, "smoke", 1, paper="mode")
    names = [step.spec.model_dump().get("name", "") for step in plan(job_spec)]
    assert set(job_spec.names()) >= {name for name in names if name.startswith("rep-")}
