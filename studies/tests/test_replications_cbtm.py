"""C-BTM's replication is a plan whose arms see equal text, and no other paper's under its name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.config import TrainingConfig
from workbench.errors import BadSpecError
from workbench.job_records import jobs
from workbench.kinds.analysis import Classify
from workbench.kinds.data import ImportCorpus
from workbench.kinds.training.mixtures import MakeMixture
from workbench.registry.database import reading, transaction
from workbench_studies.cbtm.names import DENSE, SIZES, ReplicateCbtm, balanced, shared
from workbench_studies.papers.catalog import plan
from workbench_studies.running.submission import new_spec, replications, submit_replication, with_fields

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def job_spec() -> ReplicateCbtm:
    """Of domains that are on their way."""
    with transaction() as session:
        for name in ("law", "sea", "tweets"):
            jobs.create_job(session, ImportCorpus(name=name, path=f"/text/{name}"))
    result = new_spec("cbtm", "rep", "smoke", 2, domains=["law", "sea"], novel=["tweets"])
    assert isinstance(result, ReplicateCbtm)
    return with_fields(result, budget=replace(result.budget, moe_seeds=None, smaller=None))


def test_dense_and_the_closely_examined_clusters_come_first(job_spec: ReplicateCbtm) -> None:
    mixtures = [step.spec.name for step in plan(job_spec) if isinstance(step.spec, MakeMixture)]
    assert mixtures[:4] == ["rep-s0-k1", "rep-s1-k1", "rep-s0-k2", "rep-s1-k2"]


def test_a_family_without_a_mixture_of_experts_has_none_in_its_plan(job_spec: ReplicateCbtm) -> None:
    without = plan(with_fields(job_spec, budget=replace(job_spec.budget, moe=None)))
    assert {step.key for step in plan(job_spec)} - {step.key for step in without} == {
        f"s{seed} {key}" for seed in range(2) for key in ("copied seed", "moe", "moe less", "test moe", "test moe less")
    }
    assert SIZES["small"].moe is None  # OPT


@pytest.mark.parametrize("size", SIZES)
def test_all_arms_of_a_budget_see_as_many_tokens_as_dense(size: str) -> None:
    budget = SIZES[size]  # type: ignore[index]
    subject = ReplicateCbtm(name="rep", domains=[f"text-{n}" for n in range(8)], novel=["novel"], budget=budget)
    for arm in subject.arms:
        share = budget.less if arm.at_less else 1.0
        training = shared(budget.training, arm.num_models, share)
        seen = training.num_steps * training.sequences_per_domain * arm.num_models
        assert seen == pytest.approx(share * budget.training.num_steps * budget.training.sequences_per_domain, rel=0.1)
        if budget.training.sequences_per_domain % arm.num_models == 0:
            assert training.num_steps == round(share * budget.training.num_steps)


def test_one_cluster_trains_as_the_spec_says() -> None:
    training = TrainingConfig(num_steps=100, sequences_per_domain=16)
    assert shared(training, DENSE.num_models) == training
    assert shared(training, balanced(8).num_models) == replace(training, sequences_per_domain=2)
    assert shared(training, 32) == replace(training, sequences_per_domain=1, num_steps=50)


def test_tasks_are_classified_after_all_models_that_answer_are_there(job_spec: ReplicateCbtm, tmp_path: Path) -> None:
    before = submit_replication(job_spec)
    requested = with_fields(job_spec, tasks=str(tmp_path))
    steps = {step.key: step for step in plan(requested)}
    assert set(steps["s0 tasks"].after) == {"s0 k2", "s0 k1 0", "s0 seed model"}
    spec = steps["s0 tasks"].spec
    assert isinstance(spec, Classify)
    assert (spec.mixture, spec.experts) == ("rep-s0-k2", ["rep-s0-k1.0/rep-s0-k1/0", "rep-s0-seed/dense"])
    assert set(before[:-1]) < set(submit_replication(requested))  # what was made before stays


def test_two_papers_cannot_share_a_name(job_spec: ReplicateCbtm) -> None:
    submit_replication(job_spec)
    with pytest.raises(BadSpecError, match="replication of another paper \\(cbtm\\)"):
        new_spec("demix", "rep", "smoke", 2, domains=["law", "sea"], novel=["tweets"])
    submit_replication(new_spec("demix", "other", "smoke", 1, domains=["law", "sea"], novel=["tweets"]))
    with reading() as session:
        assert {(replication.name, replication.paper) for replication in replications(session)} == {
            ("rep", "cbtm"),
            ("other", "demix"),
        }


@pytest.mark.parametrize("letters", range(50, 61))
def test_every_name_that_is_taken_gives_a_plan(letters: int) -> None:
    """The names of its clusterings must be shorter than others: those of domains begin with them."""
    with transaction() as session:
        for name in ("law", "sea", "tweets"):
            jobs.create_job(session, ImportCorpus(name=name, path=f"/text/{name}"))
    name = "r" * letters
    if letters + len("-s0-k2-standardise") <= 70:
        assert plan(new_spec("cbtm", name, "smoke", 1, domains=["law", "sea"], novel=["tweets"]))
    else:
        with pytest.raises(BadSpecError, match=r"at most 70 characters, but “.*” would have"):
            new_spec("cbtm", name, "smoke", 1, domains=["law", "sea"], novel=["tweets"])
