"""DEMix's tables and figures as a plan of ordinary jobs.

The plan depends only on the spec. The most informative results come first: DEMix and Dense of every seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pydantic import JsonValue

from workbench.kinds.analysis import MeasureOverlap
from workbench.kinds.training.train_expert import TrainExpert
from workbench.kinds.training.train_joint import TrainJoint
from workbench.specs.requests import PlanStep
from workbench_studies.core.spec import imports_and_seeds, plan_step, scoring
from workbench_studies.demix.names import METHODS, DemixRun, ReplicateDemix


def steps(spec: ReplicateDemix) -> Iterator[PlanStep]:
    """Every job but the report, in the order in which they should start."""
    yield from imports_and_seeds(spec, spec.runs)
    yield PlanStep("overlap", MeasureOverlap(domains=spec.domains), f"{spec.name}: measure the bigram overlap")
    for methods in (("demix", "dense"), METHODS[2:]):
        for run in spec.runs:
            for method in methods:
                yield _train(spec, run, method, run.mixture(method), spec.domains, method)
        for run in spec.runs:
            for method in methods:
                yield scoring(spec, run, run.mixture(method), spec.everywhere, method)
            if "demix" in methods:
                yield scoring(spec, run, run.mixture("demix"), spec.everywhere, "demix", split="dev")
    yield from _adapt(spec)
    yield from _leave_out(spec)
    yield from _interleave(spec)


def _adapt(spec: ReplicateDemix) -> Iterator[PlanStep]:
    """DEMix-DAPT and dense-DAPT on every novel domain, and their scores."""
    for run in spec.runs:
        for novel in spec.novel:
            for key, method, name in (("add", "demix", run.added(novel)), ("adapt", "dense", run.adapted(novel))):
                job = TrainExpert(
                    name=name,
                    domain=novel,
                    mixture=run.mixture(method),
                    join=False,
                    full_model=method == "dense",
                    watch=spec.domains,
                    training=replace(spec.budget.adapting, seed=run.seed),
                )
                title = f"{'DEMix' if method == 'demix' else method}-DAPT on {novel}"
                yield plan_step(run, f"{key} {novel}", job, title)
    for run in spec.runs:
        added, last = [run.added(novel) for novel in spec.novel], f"add {spec.novel[-1]}"
        for split in ("test", "dev"):
            yield scoring(spec, run, run.mixture("demix"), spec.everywhere, last, added, split=split)
        for novel in spec.novel:
            yield scoring(spec, run, run.adapted(novel), [*spec.domains, novel], f"adapt {novel}")


def _leave_out(spec: ReplicateDemix) -> Iterator[PlanStep]:
    """DEMix trained without a domain (–Domain), and its scores there."""
    runs = spec.runs[: spec.budget.retrained_seeds]
    for run in runs:
        for removed in spec.removed:
            others = [domain for domain in spec.domains if domain != removed]
            yield _train(spec, run, "demix", run.without(removed), others, f"no {removed}")
    for run in runs:
        for removed in spec.removed:
            for split in ("test", "dev"):
                yield scoring(spec, run, run.without(removed), [removed], f"no {removed}", split=split)


def _interleave(spec: ReplicateDemix) -> Iterator[PlanStep]:
    """DEMix with experts in some layers only, and its scores on the training domains; nothing in older sizes."""
    every = spec.budget.interleaved_every
    runs = spec.runs[: spec.budget.interleaved_seeds] if every else []
    for run in runs:
        yield _train(spec, run, "demix", run.interleaved, spec.domains, "interleaved", expert_every=every)
    for run in runs:
        yield scoring(spec, run, run.interleaved, spec.domains, "interleaved")


def _train(
    spec: ReplicateDemix,
    run: DemixRun,
    method: str,
    name: str,
    domains: Sequence[str],
    key: str,
    **options: JsonValue,
) -> PlanStep:
    job = TrainJoint(
        name=name,
        seed_model=run.seed_model,
        domains=list(domains),
        method=method,
        options=options,
        training=replace(spec.budget.training, seed=run.seed),
    )
    return plan_step(run, key, job, f"train {name}")
