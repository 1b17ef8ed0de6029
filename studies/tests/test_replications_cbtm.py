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
from workbench.kinds.parse_spec import parse_spec
from workbench.kinds.training.make_seed import MakeSeed
from workbench.kinds.training.mixtures import AverageExperts, MakeMixture
from workbench.kinds.training.train_expert import TrainExpert
from workbench.kinds.training.train_joint import TrainJoint
from workbench.registry.database import reading, transaction
from workbench_studies.cbtm.names import DENSE, DENSE_AT_LESS, SIZES, CbtmRun, ReplicateCbtm, arms_of, balanced, shared
from workbench_studies.papers.catalog import plan
from workbench_studies.running.submission import changed, jobs_of, replications, spec_for_domains, submit_replication

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def job_spec() -> ReplicateCbtm:
    """Of domains that are on their way."""
    with transaction() as session:
        for name in ("law", "sea", "tweets"):
            jobs.create_job(session, ImportCorpus(name=name, path=f"/text/{name}"))
    result = spec_for_domains(["law", "sea"], ["tweets"], "rep", "smoke", 2, paper="cbtm")
    assert isinstance(result, ReplicateCbtm)
    return changed(result, budget=replace(result.budget, moe_seeds=None, smaller=None))


def test_dense_and_the_closely_examined_clusters_come_first(job_spec: ReplicateCbtm) -> None:
    mixtures = [step.spec.name for step in plan(job_spec) if isinstance(step.spec, MakeMixture)]
    assert mixtures[:4] == ["rep-s0-k1", "rep-s1-k1", "rep-s0-k2", "rep-s1-k2"]


def test_every_model_is_the_full_seed_model_of_its_seed_trained_further(job_spec: ReplicateCbtm) -> None:
    trained = [step.spec for step in plan(job_spec) if isinstance(step.spec, TrainExpert)]
    assert all(one.full_model and not one.join for one in trained)
    assert {(one.parent, one.training.seed) for one in trained} == {("rep-s0-seed/dense", 0), ("rep-s1-seed/dense", 1)}


def test_a_mixture_of_experts_grows_from_the_trained_seed_on_the_text_and_batches_of_dense(
    job_spec: ReplicateCbtm,
) -> None:
    steps = {step.key: step.spec for step in plan(job_spec)}
    copy = steps["s1 copied seed"]
    assert isinstance(copy, MakeSeed)
    assert (copy.source, copy.expert) == ("expert", "rep-s1-seed/dense")
    for arm, key in ((DENSE, "moe"), (DENSE_AT_LESS, "moe less")):
        moe, dense = steps[f"s1 {key}"], steps[f"s1 {arm.key} 0"]
        assert isinstance(moe, TrainJoint)
        assert isinstance(dense, TrainExpert)
        assert (moe.seed_model, moe.domains, moe.method) == (copy.name, [dense.domain], "moe")
        assert moe.training == dense.training
        assert moe.experts == {CbtmRun("rep", 1).moe_expert(arm): [dense.domain]}


def test_a_family_without_a_mixture_of_experts_has_none_in_its_plan(job_spec: ReplicateCbtm) -> None:
    without = plan(changed(job_spec, budget=replace(job_spec.budget, moe=None)))
    assert {step.key for step in plan(job_spec)} - {step.key for step in without} == {
        f"s{seed} {key}" for seed in range(2) for key in ("copied seed", "moe", "moe less", "test moe", "test moe less")
    }
    assert SIZES["small"].moe is None  # OPT


def test_the_average_is_of_the_closely_examined_models(job_spec: ReplicateCbtm) -> None:
    run, main = CbtmRun("rep", 0), balanced(job_spec.budget.num_ablated)
    spec = {step.key: step.spec for step in plan(job_spec)}["s0 k2 average"]
    assert isinstance(spec, AverageExperts)
    assert (spec.experts, spec.weights) == (run.experts(main, job_spec.domains), None)
    assert spec.expert == run.average_expert(main)


def test_a_replication_started_before_keeps_its_jobs_and_gets_what_is_new(job_spec: ReplicateCbtm) -> None:
    """As its spec was stored then: without the knobs of the mixture of experts."""
    stored = job_spec.model_dump(mode="json")
    del stored["budget"]["moe"]
    again = parse_spec(stored)
    assert again == job_spec
    assert submit_replication(again) == submit_replication(job_spec)


@pytest.mark.parametrize("size", SIZES)
def test_all_arms_of_a_budget_see_as_many_tokens_as_dense(size: str) -> None:
    budget = SIZES[size]  # type: ignore[index]
    for arm in arms_of(budget, 8):
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


def test_asking_again_adds_no_job_and_more_seeds_keep_those_there_are(job_spec: ReplicateCbtm) -> None:
    first = submit_replication(job_spec)
    assert submit_replication(job_spec) == first
    more = submit_replication(changed(job_spec, seeds=3))
    assert set(first[:-1]) < set(more)
    with reading() as session:
        assert [(one.paper, one.seeds) for one in replications(session)] == [("cbtm", 3)]
        assert len(jobs_of(session, job_spec)) == len(first)


def test_tasks_are_classified_after_all_models_that_answer_are_there(job_spec: ReplicateCbtm, tmp_path: Path) -> None:
    before = submit_replication(job_spec)
    requested = changed(job_spec, tasks=str(tmp_path))
    steps = {step.key: step for step in plan(requested)}
    assert set(steps["s0 tasks"].after) == {"s0 k2", "s0 k1 0", "s0 seed model"}
    spec = steps["s0 tasks"].spec
    assert isinstance(spec, Classify)
    assert (spec.mixture, spec.experts) == ("rep-s0-k2", ["rep-s0-k1.0/rep-s0-k1/0", "rep-s0-seed/dense"])
    assert set(before[:-1]) < set(submit_replication(requested))  # what was made before stays


def test_two_papers_cannot_share_a_name(job_spec: ReplicateCbtm) -> None:
    submit_replication(job_spec)
    with pytest.raises(BadSpecError, match="replication of another paper \\(cbtm\\)"):
        spec_for_domains(["law", "sea"], ["tweets"], "rep", "smoke", 2)
    submit_replication(spec_for_domains(["law", "sea"], ["tweets"], "other", "smoke", 1))
    with reading() as session:
        assert {(one.name, one.paper) for one in replications(session)} == {("rep", "cbtm"), ("other", "demix")}


def test_a_name_too_long_for_what_it_makes_is_refused_with_the_name() -> None:
    with pytest.raises(BadSpecError, match=r"at most 80 characters, but “.*” would have"):
        spec_for_domains(["law", "sea"], ["tweets"], "r" * 65, "smoke", 1, paper="cbtm")


@pytest.mark.parametrize("letters", range(50, 61))
def test_every_name_that_is_taken_gives_a_plan(letters: int) -> None:
    """The names of its clusterings must be shorter than others: those of domains begin with them."""
    with transaction() as session:
        for name in ("law", "sea", "tweets"):
            jobs.create_job(session, ImportCorpus(name=name, path=f"/text/{name}"))
    name = "r" * letters
    if letters + len("-s0-k2-standardise") <= 70:
        assert plan(spec_for_domains(["law", "sea"], ["tweets"], name, "smoke", 1, paper="cbtm"))
    else:
        with pytest.raises(BadSpecError, match=r"at most 70 characters, but “.*” would have"):
            spec_for_domains(["law", "sea"], ["tweets"], name, "smoke", 1, paper="cbtm")
