"""What was measured of a replication, from stored scores. Nothing in this module reads the registry.

Shapes: E experts, X tokens, N blocks, T positions.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from engine.files import ArtifactRef
from engine.mixing.evidence import AnyEvidence
from engine.statistics.estimates import NUM_DRAWS, Estimate, Ints, Loss
from engine.text.split_names import HeldOutSplit
from workbench_studies.core.averages import Averages, Hits, Place, Statistic, SystemChange
from workbench_studies.core.spec import Replicate, Size

if TYPE_CHECKING:
    from torch import Tensor

    from engine.clusters.distances import Distances
    from engine.mixing.base import Gate


@dataclass(frozen=True)
class Stored:
    """The stored scores of an expert on a text. Shape: D documents of its split."""

    kept: ArtifactRef
    num_tokens: int
    wholes_D: Ints | None = None  # which document each of the split is a piece of; None: all are whole


ScoreKey = tuple[str, str, str]  # expert, domain, split
Scores = Mapping[ScoreKey, Stored]


@dataclass
class Measurements:
    """All measurements of a replication so far; `resampled` once they are complete."""

    subject: Replicate
    losses: dict[Place, Loss] = field(default_factory=dict)
    prior_blocks: dict[str, int] = field(default_factory=dict)  # behind each domain's cached priors
    num_draws: int = NUM_DRAWS
    unit: ClassVar[str] = "perplexity"  # of what claims compare
    scale: ClassVar[float] = 1.0  # from averages to it

    @cached_property
    def resampled(self) -> Averages:
        """The losses under bootstrap draws of the text."""
        return Averages(self.losses, self.num_draws)

    @property
    def averages(self) -> Averages:
        """What claims compare."""
        return self.resampled

    def value(self, system: Hashable, domains: Sequence[str]) -> float | None:
        """A system's perplexity, averaged over domains and the seeds that have them; None where it is missing."""
        return self.resampled.value(system, domains)

    def estimate(self, systems: Sequence[Hashable], domains: Sequence[str], statistic: Statistic) -> Estimate | None:
        """A statistic of what claims compare, in its unit."""
        return self.averages.estimate(systems, domains, lambda *each: self.scale * statistic(*each))

    def average(self, system: Hashable, domains: Sequence[str]) -> Estimate | None:
        """What claims compare, of one system."""
        return self.estimate([system], domains, lambda own: own)

    def difference(self, system: Hashable, other: Hashable, domains: Sequence[str]) -> Estimate | None:
        """How much more a system has than another."""
        return self.estimate((system, other), domains, lambda one, two: one - two)

    def change(self, system: Hashable, other: Hashable, domains: Iterable[str]) -> Estimate | None:
        """The change of perplexity from another system to this one, in %."""
        return self.resampled.changes([SystemChange(system, other, domain) for domain in domains])

    def change_by_domain(self, system: Hashable, other: Hashable, domains: Iterable[str]) -> dict[str, Estimate]:
        """The same on each domain where both were scored."""
        changes = {domain: self.change(system, other, [domain]) for domain in domains}
        return {domain: one for domain, one in changes.items() if one is not None}

    def against(self, lower: Hashable, higher: Hashable, domains: Sequence[str]) -> str:
        """The two averages that a claim compares, over the seeds with both, as text; empty without scores."""
        own = [self.estimate((lower, higher), domains, lambda *both, n=n: both[n]) for n in range(2)]
        return " against ".join(f"{one.value:.2f}" for one in own if one)

    def floor(self, _systems: Sequence[Any], _domains: Sequence[str]) -> str:
        """Why a comparison of these systems would not be a result; empty where it is one."""
        return ""

    def value_of(self, system: Hashable, domains: Sequence[str]) -> float | None:
        """The average without its interval."""
        return self.value(system, domains)

    def by_domain(
        self, domains: Sequence[str], systems: Mapping[str, Any], *, with_role: bool = False
    ) -> list[dict[str, Any]]:
        """A table of systems, by their names, on each domain."""
        return [
            {"domain": domain}
            | ({"role": self.subject.role_of(domain)} if with_role else {})
            | {name: self.value_of(system, [domain]) for name, system in systems.items()}
            for domain in domains
        ]


class Loaded(NamedTuple):
    """Scores of experts on a text, and the document in which each block begins: one, however many pieces it is in."""

    logprobs_EX: Tensor
    documents_N: Ints


@dataclass(frozen=True)
class ScoredText:
    """The stored scores of one text in one seed, under any experts."""

    measured: Any
    run: Any
    domain: str
    scores: Scores

    @property
    def subject(self) -> Any:
        return self.measured.subject

    @property
    def size(self) -> Size:
        return self.measured.subject.budget  # type: ignore[no-any-return]

    def keep(self, system: Hashable, loss: Loss | None) -> None:
        """Adds the loss of a system on this text, if there is one."""
        if loss is not None:
            self.measured.losses[system, self.run.seed, self.domain] = loss

    def load(self, experts: Sequence[str], split: HeldOutSplit) -> Loaded | None:
        """Scores of experts [E, X] on this text; None unless all exist for the same tokens and at least one block."""
        from engine.inference.scores import block_documents, open_scores

        matches = [self.scores.get((expert, self.domain, split)) for expert in experts]
        stored = [match for match in matches if match is not None]
        if len(stored) < len(matches) or not stored or len({one.num_tokens for one in stored}) > 1:
            return None
        if stored[0].num_tokens < self.size.block_size:
            return None
        folders = [one.kept.folder for one in stored]
        pieces_N, wholes_D = block_documents(folders[0]), stored[0].wholes_D
        return Loaded(open_scores(folders)[0], pieces_N if wholes_D is None else wholes_D[pieces_N])

    def one(self, expert: str) -> Loss | None:
        """The loss of a single expert."""
        test = self.load([expert], "test")
        return None if test is None else self.loss(test, test.logprobs_EX[0])

    def hits(self, expert: str) -> Hits | None:
        """Which tokens were a single expert's most probable ones; None if not counted."""
        from engine.inference.scores import token_hits

        test = self.load([expert], "test")
        hits_X = None if test is None else token_hits(self.scores[expert, self.domain, "test"].kept.folder)
        if test is None or hits_X is None:
            return None
        return Hits.of(hits_X, self.size.block_size, test.documents_N)

    def mixed(self, gate: Gate, test: Loaded, distances: Distances | None = None) -> Loss:
        """The loss of a mixture; `distances` for a gate that looks at them."""
        from engine.inference.scores import mix_scores

        return self.loss(test, mix_scores(gate, test.logprobs_EX, self.size.block_size, distances))

    def cached(self, test: Loaded, dev: Loaded | None, evidence: AnyEvidence) -> Loss | None:
        """The loss of a mixture by its posterior from a cached prior; None without the text to estimate it on."""
        from engine.mixing.posterior import PosteriorGate, estimate_prior

        if dev is None:
            return None
        uniform = PosteriorGate([1.0] * len(dev.logprobs_EX), evidence)
        blocks_ENT = self.full_blocks(dev)
        prior_E = estimate_prior(uniform, blocks_ENT, self.num_prior_blocks(blocks_ENT))
        return self.mixed(PosteriorGate(prior_E.tolist(), evidence), test)

    def loss(self, text: Loaded, logprobs_X: Tensor) -> Loss:
        return Loss.of(logprobs_X.double().numpy(), self.size.block_size, text.documents_N)

    def full_blocks(self, dev: Loaded) -> Tensor:
        from engine.inference.scores import full_blocks

        return full_blocks(dev.logprobs_EX, self.size.block_size)

    def num_prior_blocks(self, blocks_ENT: Tensor) -> int:
        """The number of blocks of the size, or all blocks of a shorter text, which the report mentions."""
        return min(self.size.prior_blocks, blocks_ENT.shape[1])
