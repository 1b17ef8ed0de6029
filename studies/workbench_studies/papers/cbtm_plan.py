"""C-BTM's tables and figures as a plan of ordinary jobs.

All models branch from one trained seed model, as the paper's do from OPT (§2.1). A model of a cluster is the whole seed
model trained on that cluster's domain; one cluster is the dense model. As in the paper (§3.2, §A.2), the models of an
arm together see as many tokens as the dense one, in as many updates: their batches are smaller, not their trainings
shorter. A mixture of experts is upcycled from the same model and reads what the dense one reads (§6). The plan depends
only on the spec; dense and the ablated number of clusters come first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

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
    SmallerRun,
    shared,
    smaller_arms,
)
from workbench_studies.cbtm.spec import ReplicateCbtm
from workbench_studies.core.sizes import Run
from workbench_studies.papers.step_maker import Maker, seeded

TASKS = "tasks"  # the key of a seed's few-shot classification


def steps(spec: ReplicateCbtm) -> list[PlanStep]:
    """Every job but the report, in the order in which they should start."""
    maker = _Maker(spec)
    all_steps = [*maker.texts(spec.runs), *(maker.seed(run) for run in spec.runs)]
    all_steps += [maker.score(run, run.seed_mixture, "test", spec.everywhere, ["seed model"]) for run in spec.runs]
    arms = spec.arms
    clustered = {arm.clustering: arm for arm in reversed(arms)}  # by the first arm of each clustering
    for arm in arms:
        is_extra = arm.num_models in spec.budget.also_ablated and arm.division in ("random", "unbalanced")
        for run in spec.runs[: spec.budget.extra_seeds if is_extra else None]:
            all_steps += maker.clusters(run, arm) if clustered[arm.clustering] == arm else []
            all_steps += [*maker.models(run, arm), *maker.scores(run, arm)]
    all_steps += [step for run in spec.runs for step in maker.average(run)]
    if spec.budget.moe:
        upcycled = spec.runs[: spec.budget.moe_seeds]
        all_steps += [step for run in upcycled for step in maker.upcycled(run, spec.budget.moe)]
    if spec.budget.smaller:
        extra = spec.runs[: spec.budget.extra_seeds]
        all_steps += [step for run in extra for step in maker.smaller(run.smaller, spec.budget.smaller)]
    return [*all_steps, *(maker.classify(run) for run in spec.runs if spec.tasks)]


@dataclass(frozen=True)
class _Maker(Maker):
    spec: ReplicateCbtm

    def key(self, run: Run, key: str) -> str:
        """Steps of the smaller shape have keys of their own."""
        return super().key(run, f"small {key}" if isinstance(run, SmallerRun) else key)

    def seed(self, run: CbtmRun) -> PlanStep:
        """The seed model, trained on all training text."""
        spec = TrainJoint(
            name=run.seed_mixture,
            seed_model=run.seed_model,
            domains=self.spec.domains,
            method="dense",
            training=seeded(self.spec.budget.seeding, run),
        )
        return self.step(run, "seed model", spec, f"train {run.seed_mixture}", [self.key(run, "seed")])

    def clusters(self, run: CbtmRun, arm: Arm) -> Iterator[PlanStep]:
        """The clusters of an arm and a domain of each; nothing where metadata has them."""
        if arm.division == "metadata":
            return
        name = run.clustering(arm)
        all_steps = FindClusters(
            name=name,
            domains=self.spec.domains,
            num_clusters=arm.num_models,
            method=arm.division,
            scaling=arm.scaling,
            map_size=0,
            seed=run.seed,
        )
        yield self.step(run, f"find {arm.clustering}", all_steps, f"find {arm}", self.imports(self.spec.domains))
        made = MakeClusterDomains(clustering=name, domains=run.domains(arm, self.spec.domains))
        needs = [self.key(run, f"find {arm.clustering}")]
        yield self.step(run, f"domains {arm.clustering}", made, f"make domains of {name}", needs)

    def models(self, run: CbtmRun, arm: Arm) -> Iterator[PlanStep]:
        """A model of each domain of an arm, and the mixture of them."""
        training = shared(self.spec.budget.training, arm.num_models, self.spec.budget.less if arm.at_less else 1.0)
        needs = [self.key(run, "seed model"), *self._domains(run, arm)]
        for number, domain in enumerate(run.domains(arm, self.spec.domains)):
            spec = TrainExpert(
                name=run.model(arm, number),
                domain=domain,
                mixture=run.seed_mixture,
                parent=run.seed_expert,
                full_model=True,
                join=False,
                training=seeded(training, run),
            )
            yield self.step(run, f"{arm.key} {number}", spec, f"train {run.model(arm, number)}", needs)
        clustering = None if arm.division == "metadata" else run.clustering(arm)
        mixture = MakeMixture(name=run.mixture(arm), experts=run.experts(arm, self.spec.domains), clustering=clustering)
        needs = [self.key(run, f"{arm.key} {number}") for number in range(arm.num_models)]
        yield self.step(run, arm.key, mixture, f"compose {run.mixture(arm)}", needs)

    def scores(self, run: CbtmRun, arm: Arm) -> Iterator[PlanStep]:
        """Scores everywhere; where figure 15 or BTM's ways to weigh need them, on each cluster and on dev text, too."""
        yield self.score(run, run.mixture(arm), "test", self.spec.everywhere, [arm.key])
        if arm == self.spec.main:
            homes = self.score(run, run.mixture(arm), "test", run.domains(arm, self.spec.domains), [arm.key])
            yield replace(homes, key=f"{homes.key} at home", title=f"{homes.title} of its clusters")
        if arm in (self.spec.reference, self.spec.main) or arm.division == "metadata":
            yield self.score(run, run.mixture(arm), "dev", self.spec.everywhere, [arm.key])

    def average(self, run: CbtmRun) -> Iterator[PlanStep]:
        """One model of the arm of the ablations, by the mean of their parameters (§2.4), and its scores."""
        arm = self.spec.main
        spec = AverageExperts(name=run.average(arm), experts=run.experts(arm, self.spec.domains))
        needs = [self.key(run, f"{arm.key} {number}") for number in range(arm.num_models)]
        key = f"{arm.key} average"
        yield self.step(run, key, spec, f"average the models of {run.mixture(arm)}", needs)
        yield self.score(run, run.average(arm), "test", self.spec.everywhere, [key])

    def upcycled(self, run: CbtmRun, moe: MoeConfig) -> Iterator[PlanStep]:
        """Figure 12: a mixture of experts of the seed model, on Dense's text at both budgets, and their scores."""
        seed = MakeSeed(name=run.copied_seed, source="expert", expert=run.seed_expert)
        yield self.step(
            run, "copied seed", seed, f"make a seed model of {run.seed_expert}", [self.key(run, "seed model")]
        )
        for arm, share in ((DENSE, 1.0), (DENSE_AT_LESS, self.spec.budget.less)):
            training = seeded(shared(self.spec.budget.training, 1, share), run)
            spec = TrainJoint(
                name=run.moe(arm),
                seed_model=run.copied_seed,
                domains=run.domains(arm, self.spec.domains),
                method="moe",
                training=training,
                moe=moe,
            )
            key = "moe less" if arm.at_less else "moe"
            needs = [self.key(run, "copied seed"), *self._domains(run, arm)]
            yield self.step(run, key, spec, f"train {run.moe(arm)}", needs)
            yield self.score(run, run.moe(arm), "test", self.spec.everywhere, [key])

    def smaller(self, run: SmallerRun, shape: ModelConfig) -> Iterator[PlanStep]:
        """Figures 7 and 11: a smaller seed model, and its arms on the same clusters, with their scores."""
        yield self.fresh_seed(run, shape)
        yield self.seed(run)
        for arm in smaller_arms(self.spec.budget):
            yield from self.models(run, arm)
            yield self.score(run, run.mixture(arm), "test", self.spec.everywhere, [arm.key])

    def classify(self, run: CbtmRun) -> PlanStep:
        """Few-shot classification by the arm of the ablations, Dense and the seed model beside it (§5)."""
        arm = self.spec.main
        beside = [*run.experts(DENSE, self.spec.domains), run.seed_expert]
        spec = Classify(mixture=run.mixture(arm), path=self.spec.tasks, experts=beside)
        needs = [self.key(run, arm.key), self.key(run, DENSE.key)]
        return self.step(run, TASKS, spec, f"classify by {run.mixture(arm)}", needs)

    def _domains(self, run: CbtmRun, arm: Arm) -> list[str]:
        """The keys of what makes an arm's domains."""
        if arm.division == "metadata":
            return list(self.imports(self.spec.domains))
        return [self.key(CbtmRun(run.name, run.seed), f"domains {arm.clustering}")]
