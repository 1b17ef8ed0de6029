"""Make a mixture after the jobs that train its experts."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from engine.events import Progress
from engine.mixing.gates.cluster import ClusterGateConfig
from jobs.attempt.work import JobRun, Work
from workbench.kinds.training.mixtures import MakeMixture
from workbench.registry.clusters.clusterings import clustering_row
from workbench.registry.mixtures import compose_mixture
from workbench.specs.gates import changed_gate
from workbench.specs.requests import MixtureSpec


def run(_: Work, spec: MakeMixture) -> JobRun:
    """Registers the mixture. Nothing is computed."""
    yield Progress(0, 1, "mixtures", "composing")

    def register(session: Session) -> dict[str, Any]:
        gate = spec.gate
        if spec.clustering is not None:
            clustering = clustering_row(session, spec.clustering).id
            gate = changed_gate(gate, {"kind": ClusterGateConfig.kind, "clustering": clustering})
        mixture = MixtureSpec(name=spec.name, experts=spec.experts, weights=spec.weights, gate=gate)
        card = compose_mixture(session, mixture, replace=spec.replace)
        return {"mixture": card.name, "experts": [member.expert for member in card.members]}

    return register
