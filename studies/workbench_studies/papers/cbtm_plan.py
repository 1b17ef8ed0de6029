"""C-BTM's tables and figures as a plan of ordinary jobs.

All models branch from one trained seed model, as the paper's do from OPT (§2.1). A model of a cluster is the whole seed
model trained on that cluster's domain; one cluster is the dense model. As in the paper (§3.2, §A.2), the models of an
arm together see as many tokens as the dense one, in as many updates: their batches are smaller, not their trainings
shorter. A mixture of experts is upcycled from the same model and reads what the dense one reads (§6). The plan depends
only on the spec; dense and the ablated number of clusters come first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from engine.config import ModelConfig, MoeConfig
from workbench.kinds.analysis import Classify
from workbench.kinds.clusters import FindClusters, MakeClusterDomains
from workbench.kinds.training.make_seed import MakeSeed
from workbench.kinds.training.mixtures import AverageExperts, MakeMixture
from workbench.kinds.training.train_expert import TrainExpert
from workbench.kinds.training.train_joint import TrainJoint
from workbench.specs.requests import PlanStep
from workbench_studies.cbtm.names import (
    DENSE,
    DENSE_AT_LESS,
    Arm,
    CbtmRun,
    ReplicateCbtm,
    SmallerRun,
    shared,
)
from workbench_studies.core.spec import fresh_seed, imports_and_seeds, plan_step, scoring

TASKS = "tasks"  # the key of a seed's few-shot classification


def steps(spec: ReplicateCbtm) -> Iterator[PlanStep]:
    """Every job but the report, in the order in which they should start."""
    size, arms = spec.budget, spec.arms
    yield from imports_and_seeds(spec, spec.runs)
    for run in spec.runs:
        yield _train_seed(spec, run)
    for run in spec.runs:
        yield scoring(spec, run, run.seed_mixture, spec.everywhere, "seed model")
    first_arms = {arm.clustering: arm for arm in reversed(arms)}  # of each clustering
    for arm in arms:
        is_extra = arm.num_models in size.also_ablated and arm.division in ("random", "unbalanced")
        for run in spec.runs[: size.extra_seeds if is_extra else None]:
            if first_arms[arm.clustering] == arm:
                yield from _clusters(spec, run, arm)
            yield from _models(spec, run, arm)
            yield from _scores(spec, run, arm)
    for run in spec.runs:
        yield from _average(spec, run)
    if size.moe:
        for run in spec.runs[: size.moe_seeds]:
            yield from _upcycle(spec, run, size.moe)
    if size.smaller:
        for run in spec.runs[: size.extra_seeds]:
            yield from _train_smaller(spec, run.smaller, size.smaller)
    for run in spec.runs if spec.tasks else ():  # few-shot: the arm of the ablations, Dense and the seed model (§5)
        others, mixture = [*run.experts(DENSE, spec.domains), run.seed_expert], run.mixture(spec.main)
        job = Classify(mixture=mixture, path=spec.tasks, experts=others)
        yield plan_step(run, TASKS, job, f"classify by {mixture}")


def _train_seed(spec: ReplicateCbtm, run: CbtmRun) -> PlanStep:
    """The seed model, trained on all training text."""
    training = replace(spec.budget.seeding, seed=run.seed)
    job = TrainJoint(
        name=run.seed_mixture, seed_model=run.seed_model, domains=spec.domains, method="dense", training=training
    )
    return plan_step(run, "seed model", job, f"train {run.seed_mixture}")


def _clusters(spec: ReplicateCbtm, run: CbtmRun, arm: Arm) -> Iterator[PlanStep]:
    """The clusters of an arm and a domain of each; nothing where metadata has them."""
    if arm.division == "metadata":
        return
    name = run.clustering(arm)
    clusters = FindClusters(
        name=name,
        domains=spec.domains,
        num_clusters=arm.num_models,
        method=arm.division,
        scaling=arm.scaling,
        map_size=0,
        seed=run.seed,
    )
    yield plan_step(run, f"find {arm.clustering}", clusters, f"find {arm}")
    domains = MakeClusterDomains(clustering=name, domains=run.domains(arm, spec.domains))
    yield plan_step(run, f"domains {arm.clustering}", domains, f"make domains of {name}")


def _models(spec: ReplicateCbtm, run: CbtmRun, arm: Arm) -> Iterator[PlanStep]:
    """A model of each domain of an arm, and the mixture of them."""
    training = shared(spec.budget.training, arm.num_models, spec.budget.less if arm.at_less else 1.0)
    for number, domain in enumerate(run.domains(arm, spec.domains)):
        model = TrainExpert(
            name=run.model(arm, number),
            domain=domain,
            mixture=run.seed_mixture,
            parent=run.seed_expert,
            full_model=True,
            join=False,
            training=replace(training, seed=run.seed),
        )
        yield plan_step(run, f"{arm.key} {number}", model, f"train {run.model(arm, number)}")
    clustering = None if arm.division == "metadata" else run.clustering(arm)
    mixture = MakeMixture(name=run.mixture(arm), experts=run.experts(arm, spec.domains), clustering=clustering)
    yield plan_step(run, arm.key, mixture, f"compose {run.mixture(arm)}")


def _scores(spec: ReplicateCbtm, run: CbtmRun, arm: Arm) -> Iterator[PlanStep]:
    """Scores everywhere; where figure 15 or BTM's ways to weigh need them, also on each cluster and on dev text."""
    yield scoring(spec, run, run.mixture(arm), spec.everywhere, arm.key)
    if arm == spec.main:
        homes = scoring(spec, run, run.mixture(arm), run.domains(arm, spec.domains), arm.key)
        yield replace(homes, key=f"{homes.key} at home", title=f"{homes.title} of its clusters")
    if arm in (spec.reference, spec.main) or arm.division == "metadata":
        yield scoring(spec, run, run.mixture(arm), spec.everywhere, arm.key, split="dev")


def _average(spec: ReplicateCbtm, run: CbtmRun) -> Iterator[PlanStep]:
    """One model of the arm of the ablations, by the mean of their parameters (§2.4), and its scores."""
    arm = spec.main
    job, key = AverageExperts(name=run.average(arm), experts=run.experts(arm, spec.domains)), f"{arm.key} average"
    yield plan_step(run, key, job, f"average the models of {run.mixture(arm)}")
    yield scoring(spec, run, run.average(arm), spec.everywhere, key)


def _upcycle(spec: ReplicateCbtm, run: CbtmRun, moe: MoeConfig) -> Iterator[PlanStep]:
    """Figure 12: a mixture of experts of the seed model, on Dense's text at both budgets, and their scores."""
    seed = MakeSeed(name=run.seed_mixture, source="expert", expert=run.seed_expert)
    yield plan_step(run, "copied seed", seed, f"make a seed model of {run.seed_expert}")
    for arm, share in ((DENSE, 1.0), (DENSE_AT_LESS, spec.budget.less)):
        job = TrainJoint(
            name=run.moe(arm),
            seed_model=run.seed_mixture,
            domains=run.domains(arm, spec.domains),
            method="moe",
            training=replace(shared(spec.budget.training, 1, share), seed=run.seed),
            moe=moe,
        )
        key = "moe less" if arm.at_less else "moe"
        yield plan_step(run, key, job, f"train {run.moe(arm)}")
        yield scoring(spec, run, run.moe(arm), spec.everywhere, key)


def _train_smaller(spec: ReplicateCbtm, run: SmallerRun, shape: ModelConfig) -> Iterator[PlanStep]:
    """Figures 7 and 11: a smaller seed model, and its arms on the same clusters, with their scores."""
    yield fresh_seed(spec, run, shape)
    yield _train_seed(spec, run)
    for arm in spec.smaller_arms:
        yield from _models(spec, run, arm)
        yield scoring(spec, run, run.mixture(arm), spec.everywhere, arm.key)
