"""The plan of an expert of what was chosen on a map: a domain of the documents, then a training on it."""

from __future__ import annotations

from jobs.plans.plan import submit_plan
from workbench.job_records.jobs import title_of
from workbench.kinds.data.make_domain import MakeDomain
from workbench.kinds.training.train_expert import TrainExpert
from workbench.kinds.training.train_joint import TrainJoint
from workbench.plans import Step
from workbench.settings import Settings


def submit_selection(
    domain: MakeDomain, training: TrainExpert | TrainJoint, settings: Settings | None = None
) -> list[str]:
    """Submits both jobs in one transaction and returns their ids. Raises BadSpec, and then submits neither."""
    steps = [
        Step("domain", domain, title_of(domain)),
        Step("expert", training, title_of(training), ("domain",)),
    ]
    return submit_plan(lambda _: steps, settings)
