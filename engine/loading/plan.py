"""What a host is asked for and what it holds: the plan of a generation, and the use of its memory. Loads no torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine.config import ServeEngine, ServePrecision
from engine.files import ArtifactRef
from engine.mixing.gate_type import GateConfig, build_gate

if TYPE_CHECKING:
    from engine.clusters.distances import GrowingContext
    from engine.mixing.base import Gate


@dataclass(frozen=True)
class Route:
    """A clustering on disk, the seed model of its embedder if it has one, and the cluster of each expert in order.

    None stands for an expert that is of no cluster.
    """

    artifact_id: str
    clustering: ArtifactRef
    seed: ArtifactRef | None
    clusters: tuple[int | None, ...]


@dataclass(frozen=True)
class PlannedExpert:
    """An expert of a plan: its files and its share of the prior."""

    id: str
    name: str
    sha256: str
    folder: Path
    weight: float
    base: ArtifactRef
    parts: tuple[str, ...] | None = None  # active parts of an expert with parts; an empty tuple is its backbone
    record: Path | None = None  # of when its files were last verified
    method: str = ""

    @property
    def kept(self) -> ArtifactRef:
        """The folder of its weights, and their expected hash."""
        return ArtifactRef(self.folder, self.sha256, self.record)


@dataclass(frozen=True)
class GenerationPlan:
    """Everything that one generation needs. It holds only experts with a weight above 0."""

    model: str
    experts: tuple[PlannedExpert, ...]
    member_ids: tuple[str, ...]  # all experts of the model, inactive ones included
    tokenizer_sha256: str
    gate: GateConfig
    route: Route | None = None  # of a cluster gate
    precision: ServePrecision = "stored"  # what its weights are served in
    engine: ServeEngine = "own"  # what computes the answer
    evidence_from: int = 0  # the token of the prompt where evidence begins: in a conversation the user's first words

    @property
    def base(self) -> ArtifactRef:
        """The first expert's base; all share its tokenizer."""
        return self.experts[0].base

    @property
    def names(self) -> dict[str, str]:
        """The experts' names, by their ids."""
        return {expert.id: expert.name for expert in self.experts}

    @property
    def clusters(self) -> tuple[int, ...] | None:
        """The cluster of each expert; None if an expert has none, so that distances cannot weigh them."""
        known = tuple(number for number in self.route.clusters if number is not None) if self.route else ()
        return known if self.route and len(known) == len(self.route.clusters) else None

    def of_experts(self, places: Sequence[int]) -> GenerationPlan:
        """The plan of only the experts in these places; their weights keep their proportions."""
        route = self.route and replace(self.route, clusters=tuple(self.route.clusters[place] for place in places))
        return replace(self, experts=tuple(self.experts[place] for place in places), route=route)

    def by_base(self) -> dict[ArtifactRef, list[PlannedExpert]]:
        """The experts of each base."""
        groups: dict[ArtifactRef, list[PlannedExpert]] = {}
        for expert in self.experts:
            groups.setdefault(expert.base, []).append(expert)
        return groups

    def files(self) -> dict[ArtifactRef, dict[str, ArtifactRef]]:
        """The files of each base's experts, by their ids."""
        return {base: {expert.id: expert.kept for expert in experts} for base, experts in self.by_base().items()}


def gate_of(planned: GenerationPlan, follow: Callable[[], GrowingContext] | None = None) -> Gate:
    """The gate of a plan. A cluster gate needs `follow` for a growing text, but not for stored scores."""
    from engine.mixing.cluster import Routing

    routing = Routing(planned.route.clusters, follow) if planned.route else None
    return build_gate(planned.gate, [expert.weight for expert in planned.experts], routing)


@dataclass(frozen=True)
class BaseInMemory:
    """A base in memory, with the ids of the experts loaded on it."""

    base_sha256: str
    precision: ServePrecision
    experts: list[str]
    separate_because: str | None = None  # why its streams share no passes; None where they do, or none began yet


@dataclass(frozen=True)
class HostUse:
    """What loaded models, clusterings and running streams take, how often a request had its experts, and the drafts."""

    bases: Sequence[BaseInMemory] = ()
    num_bytes: int = 0
    num_clustering_bytes: int = 0
    num_stream_bytes: int = 0  # keys and values of streams that share passes
    num_reserved_bytes: int = 0  # for keys and values of all running streams
    num_hits: int = 0
    num_misses: int = 0
    num_judged_drafts: int = 0
    num_accepted_drafts: int = 0
