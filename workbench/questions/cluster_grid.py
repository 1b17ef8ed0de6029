"""A gate of clusters at every temperature and top-k at once, from stored scores and distances (C-BTM table 9).

Shapes: E experts, X tokens, G temperatures, J numbers of experts kept.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field
from sqlalchemy.orm import Session

from engine.errors import MixtureError, ScoresError
from engine.loading.plan import GenerationPlan, gate_of
from engine.mixing.gates.cluster import ClusterGateConfig, DistanceConfig
from engine.text.split_names import HeldOutSplit
from workbench.analysis.scores import load_counted, load_distances, load_scores, scored_domains
from workbench.answers.base import Answer
from workbench.formatting.shell_command import evaluate_command, shell_command
from workbench.questions.question import Question, Split
from workbench.requests.planning import plan
from workbench.schema.tables import Clustering, Evaluation
from workbench.store.storage import Storage

if TYPE_CHECKING:
    from torch import Tensor

    from engine.mixing.base import Gate

# Those of table 9, then higher ones: the squared distances between standardised vectors are a hundred times as large.
TEMPERATURES: tuple[float, ...] = (0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 3.0, 10.0, 30.0, 100.0)


class GridDomain(Answer):
    """One domain's perplexities at every temperature (rows) and top-k (columns)."""

    domain: str
    num_tokens: int
    perplexity: list[list[float]]


class SavedGate(Answer):
    """The cell of the grid at which the mixture's saved gate is."""

    temperature: float
    top_k: int


class TemperatureProposal(Answer):
    """The temperature of a cluster gate with the lowest perplexity on dev text, at the gate's own top-k."""

    temperature: float
    perplexity: float | None = Field(description="At this temperature, over all dev text used; None: not scored.")
    default: float = Field(description="The temperature that a gate has unless it is set (the paper's).")
    default_perplexity: float | None
    current: float = Field(description="The temperature that the gate has now.")
    domains: list[str] = Field(description="Whose dev text was used: of those that were clustered, the scored ones.")
    command: str = Field(description="Sets the temperature; or makes the scores that are missing.")


class ClusterGrid(Answer):
    """Perplexities at every temperature (rows) and top-k (columns) of a cluster gate, experts alike in their prior."""

    mixture: str
    experts: list[str]
    split: HeldOutSplit
    temperatures: list[float]
    top_ks: list[int]
    perplexity: list[list[float]] = Field(description="Over the tokens of all domains.")
    domains: list[GridDomain]
    saved: SavedGate
    distance_power: float
    seconds: float
    proposed: TemperatureProposal | None = Field(None, description="Always from dev text, whatever the grid's split.")


class ClusterGridRequest(Question[ClusterGrid]):
    """A cluster gate's perplexity at every temperature and top-k, from stored scores and distances."""

    path = "cluster-grid"
    operation = "compute_cluster_grid"

    mixture: str = Field(description="Name of a mixture with a cluster gate.")
    temperatures: list[Annotated[float, Field(ge=1e-12, allow_inf_nan=False)]] = Field(
        default_factory=list, max_length=50, description="Temperatures to compare; empty takes a usual choice."
    )
    split: Split = "test"

    def answer(self, session: Session, storage: Storage) -> ClusterGrid:
        """Perplexities of a mixture by temperature (rows) and top-k (columns), experts alike in their prior.

        Temperatures are the given ones, or else a usual choice with the paper's and the mixture's among them; top-ks
        are the powers of two, and all experts.
        Raises MixtureError for a gate that looks at no clusters, ScoresError for text without measured distances.
        """
        started = time.perf_counter()
        planned = plan(session, storage, self.mixture)
        gate = _cluster_gate(planned)
        chosen = sorted(self.temperatures or {*TEMPERATURES, gate.temperature})
        num_experts = len(planned.experts)
        top_ks = sorted({*(1 << power for power in range((num_experts - 1).bit_length())), num_experts})
        rows = _rows(session, storage, planned, self.split, chosen, top_ks)
        return ClusterGrid.from_fields(
            self,
            experts=[expert.name for expert in planned.experts],
            temperatures=chosen,
            top_ks=top_ks,
            perplexity=_over_all(rows),
            domains=rows,
            saved=SavedGate(temperature=gate.temperature, top_k=gate.top_k or len(planned.experts)),
            distance_power=gate.distance_power,
            proposed=_proposal(session, storage, planned),
            seconds=time.perf_counter() - started,
        )


QUESTION = ClusterGridRequest


def propose_temperature(session: Session, storage: Storage, mixture: str) -> TemperatureProposal:
    """The temperature that the grid finds on dev text of the domains that were clustered, never on test text.

    It is the gate's default where that text is not scored; the command then says what makes the scores. Raises
    MixtureError for a gate that looks at no clusters.
    """
    planned = plan(session, storage, mixture)
    _cluster_gate(planned)
    return _proposal(session, storage, planned)


def _proposal(session: Session, storage: Storage, planned: GenerationPlan) -> TemperatureProposal:
    gate, default, name = _cluster_gate(planned), DistanceConfig("").temperature, planned.model
    clustering = session.get_one(Clustering, gate.clustering)
    clustered = [source["name"] for source in clustering.sources]
    clusters = [one.domain.name for one in clustering.clusters if one.domain is not None]
    top_ks = [gate.top_k or len(planned.experts)]
    try:
        rows = _rows(session, storage, planned, "dev", TEMPERATURES, top_ks, clustered)
        rows = rows or _rows(session, storage, planned, "dev", TEMPERATURES, top_ks, clusters)  # the same documents
    except ScoresError:  # the text was scored before the mixture had this clustering
        rows = []
    values = dict(zip(TEMPERATURES, (row[0] for row in _over_all(rows)), strict=False))
    best = min(values, key=values.__getitem__, default=default)
    saves = shell_command("mixture", "gate", name, "--temperature", f"{best:g}")
    return TemperatureProposal(
        temperature=best,
        perplexity=values.get(best),
        default=default,
        default_perplexity=values.get(default),
        current=gate.temperature,
        domains=[row.domain for row in rows],
        command=saves if rows else evaluate_command(name, "dev", "--domains", ",".join(clustered)),
    )


def _cluster_gate(planned: GenerationPlan) -> DistanceConfig:
    """The gate of a plan; raises MixtureError for one that looks at no clusters."""
    if isinstance(planned.gate, DistanceConfig):
        return planned.gate
    problem = f"“{planned.model}” must have a cluster gate, but its gate is “{planned.gate.kind}”."
    raise MixtureError(problem, "Choose a mixture that `workbench train clusters` made, or give this one the gate.")


def _rows(
    session: Session,
    storage: Storage,
    planned: GenerationPlan,
    split: HeldOutSplit,
    temperatures: Sequence[float],
    top_ks: Sequence[int],
    only: Collection[str] | None = None,
) -> list[GridDomain]:
    return [
        GridDomain(
            domain=domain,
            num_tokens=evaluations[0].num_tokens,
            perplexity=_grid(session, storage, planned, evaluations, temperatures, top_ks),
        )
        for domain, evaluations in scored_domains(session, planned, split).items()
        if only is None or domain in only
    ]


def _grid(
    session: Session,
    storage: Storage,
    planned: GenerationPlan,
    evaluations: Sequence[Evaluation],
    temperatures: Sequence[float],
    top_ks: Sequence[int],
) -> list[list[float]]:
    """Perplexities [G][J] on one text that all experts were scored on."""
    from engine.inference.scores import as_blocks
    from engine.mixing.cluster_gate_grid import any_gate_grid, cluster_gate_grid

    distances = load_distances(session, storage, planned, evaluations[0])
    scores_EX, block_size = load_scores(storage, evaluations)
    counted_X = load_counted(storage, evaluations[0])
    gate = planned.gate
    if planned.clusters is not None and isinstance(gate, ClusterGateConfig):
        frozen = distances.frozen(gate.freeze_after)
        squared_EX: Tensor = frozen.further_KX[list(planned.clusters)].double() + frozen.nearest_X.double()
        power = gate.distance_power
        values_GJ = cluster_gate_grid(
            scores_EX, squared_EX, temperatures, top_ks, distance_power=power, counted_X=counted_X
        )
    else:
        blocks_ENT, num_tokens = as_blocks(scores_EX, block_size), scores_EX.shape[1]
        gate_at = partial(_gate_at, planned)
        values_GJ = any_gate_grid(gate_at, blocks_ENT, distances, num_tokens, temperatures, top_ks, counted_X=counted_X)
    values: list[list[float]] = values_GJ.tolist()
    return values


def _gate_at(planned: GenerationPlan, temperature: float) -> Gate:
    """The plan's gate at a temperature, without a top-k, experts alike in their prior."""
    assert isinstance(planned.gate, DistanceConfig)
    alike = tuple(replace(expert, weight=1.0) for expert in planned.experts)
    return gate_of(replace(planned, experts=alike, gate=replace(planned.gate, temperature=temperature, top_k=None)))


def _over_all(rows: Sequence[GridDomain]) -> list[list[float]]:
    """The perplexities over the tokens of all texts; [] for none."""
    if not rows:
        return []
    tokens = [row.num_tokens for row in rows]
    mean_GJ = np.average(np.log([row.perplexity for row in rows]), axis=0, weights=tokens)
    values: list[list[float]] = np.exp(mean_GJ).tolist()
    return values
