"""DEMix's tables and figures as a plan of ordinary jobs.

The plan depends only on the spec. The most informative results come first: DEMix and Dense of every seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from pydantic import JsonValue

from workbench.kinds.analysis import MeasureOverlap
from workbench.kinds.training.train_expert import TrainExpert
from workbench.kinds.training.train_joint import TrainJoint
from workbench.specs.requests import PlanStep
from workbench_studies.demix.names import METHODS, DemixRun
from workbench_studies.demix.spec import ReplicateDemix
from workbench_studies.papers.step_maker import Maker, seeded


def steps(spec: ReplicateDemix) -> list[PlanStep]:
    """Every job but the report, in the order in which they should start."""
    maker = _Maker(spec)
    all_steps = [
        *maker.texts(spec.runs),
        maker.overlap(),
        *maker.models(("demix", "dense")),
        *maker.models(METHODS[2:]),
    ]
    return [*all_steps, *maker.adapted(), *maker.removed(), *maker.interleaved()]


@dataclass(frozen=True)
class _Maker(Maker):
    spec: ReplicateDemix

    def overlap(self) -> PlanStep:
        """The overlap of the training domains."""
        needs = self.imports(self.spec.domains)
        spec = MeasureOverlap(domains=self.spec.domains)
        return PlanStep("overlap", spec, f"{self.spec.name}: measure the bigram overlap", needs)

    def models(self, methods: Sequence[str]) -> Iterator[PlanStep]:
        """Trainings from the seed model by these methods in every seed, and their scores."""
        for run in self.spec.runs:
            for method in methods:
                yield self._train(run, method, run.mixture(method), self.spec.domains, method)
        for run in self.spec.runs:
            for method in methods:
                yield self.score(run, run.mixture(method), "test", self.spec.everywhere, [method])
            if "demix" in methods:
                yield self.score(run, run.mixture("demix"), "dev", self.spec.everywhere, ["demix"])

    def adapted(self) -> Iterator[PlanStep]:
        """DEMix-DAPT and dense-DAPT on every novel domain, and their scores."""
        for run in self.spec.runs:
            for novel in self.spec.novel:
                yield self._add(run, novel)
                yield self._adapt_full(run, novel)
        for run in self.spec.runs:
            added, needs = [run.added(one) for one in self.spec.novel], [f"add {one}" for one in self.spec.novel]
            for split in ("test", "dev"):
                yield self.score(run, run.mixture("demix"), split, self.spec.everywhere, needs, added)
            for novel in self.spec.novel:
                yield self.score(run, run.adapted(novel), "test", [*self.spec.domains, novel], [f"adapt {novel}"])

    def removed(self) -> Iterator[PlanStep]:
        """DEMix trained without a domain (–Domain), and its scores there."""
        runs = self.spec.runs[: self.spec.budget.retrained_seeds]
        for run in runs:
            for domain in self.spec.removed:
                others = [one for one in self.spec.domains if one != domain]
                yield self._train(run, "demix", run.without(domain), others, f"no {domain}")
        for run in runs:
            for domain in self.spec.removed:
                for split in ("test", "dev"):
                    yield self.score(run, run.without(domain), split, [domain], [f"no {domain}"])

    def interleaved(self) -> Iterator[PlanStep]:
        """DEMix with experts in some layers only, and its scores on the training domains; nothing in older sizes."""
        every = self.spec.budget.interleaved_every
        runs = self.spec.runs[: self.spec.budget.interleaved_seeds] if every else []
        for run in runs:
            options: dict[str, JsonValue] = {"expert_every": every}
            yield self._train(run, "demix", run.interleaved, self.spec.domains, "interleaved", options)
        for run in runs:
            yield self.score(run, run.interleaved, "test", self.spec.domains, ["interleaved"])

    def _train(
        self,
        run: DemixRun,
        method: str,
        name: str,
        domains: Sequence[str],
        key: str,
        options: Mapping[str, JsonValue] = MappingProxyType({}),
    ) -> PlanStep:
        spec = TrainJoint(
            name=name,
            seed_model=run.seed_model,
            domains=list(domains),
            method=method,
            options=dict(options),
            training=seeded(self.spec.budget.training, run),
        )
        return self.step(run, key, spec, f"train {name}", [self.key(run, "seed")])

    def _add(self, run: DemixRun, novel: str) -> PlanStep:
        spec = TrainExpert(
            name=run.added(novel),
            domain=novel,
            mixture=run.mixture("demix"),
            join=False,
            watch=self.spec.domains,
            training=seeded(self.spec.budget.adapting, run),
        )
        needs = [self.key(run, "demix"), *self.imports([novel])]
        return self.step(run, f"add {novel}", spec, f"DEMix-DAPT on {novel}", needs)

    def _adapt_full(self, run: DemixRun, novel: str) -> PlanStep:
        spec = TrainExpert(
            name=run.adapted(novel),
            domain=novel,
            mixture=run.mixture("dense"),
            join=False,
            full_model=True,
            watch=self.spec.domains,
            training=seeded(self.spec.budget.adapting, run),
        )
        needs = [self.key(run, "dense"), *self.imports([novel])]
        return self.step(run, f"adapt {novel}", spec, f"dense-DAPT on {novel}", needs)
