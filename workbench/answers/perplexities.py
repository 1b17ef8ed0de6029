"""Answers about perplexities: of experts, of mixtures and of inference modes. All perplexities are per token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from pydantic import Field

from engine.text.split_names import HeldOutSplit
from workbench.answers.base import Answer

Cells = list[list[float | None]]  # expert × domain; None where nothing was measured
InferenceMode = Literal["naive", "label", "average", "uniform", "updating", "cached", "mixture", "oracle"]
INFERENCE_MODES: tuple[InferenceMode, ...] = get_args(InferenceMode)


class Measure(Answer):
    """Which tokens of a domain were scored: how many, in blocks of which size."""

    block_size: int
    num_tokens: int


class DomainMeasure(Measure):
    """The measure of one domain."""

    domain: str


class PerplexityTable(Answer):
    """Experts on the domains that they were scored on. All numbers of a domain are of the same tokens."""

    experts: list[str]
    domains: list[str]
    measures: list[Measure] = Field(description="One for each domain.")
    perplexity: Cells
    accuracy: Cells = Field(description="Share of tokens that were the most probable ones.")
    specialization: Cells = Field(
        description="Ratio to the perplexity of the domain's own expert; above 1 where an expert is worse than that."
    )


class MixedDomain(DomainMeasure):
    """One domain under a mixture, and under each of its single experts."""

    perplexity: float
    best_expert: str
    perplexity_by_expert: dict[str, float]


class MixedScores(Answer):
    """A mixture's perplexity on every domain."""

    experts: list[str]
    domains: list[MixedDomain]
    seconds: float


class InferenceModePerplexities(Answer):
    """Perplexities under each inference mode, under the saved gate (`mixture`), and of the oracle.

    The oracle is the best expert of each block in hindsight; log(mixture / oracle) is the oracle gap in nats per token.
    """

    naive: float
    label: float | None = Field(description="None without an expert of the domain's own.")
    average: float
    uniform: float
    updating: float
    cached: float | None = Field(description="None where too few dev blocks are scored.")
    oracle: float
    mixture: float

    def by_mode(self) -> dict[InferenceMode, float | None]:
        """The perplexity under each inference mode."""
        return {mode: getattr(self, mode) for mode in INFERENCE_MODES}


class InferenceModeDomain(InferenceModePerplexities):
    """One domain under each inference mode."""

    domain: str
    role: str
    is_trained: bool = Field(description="Whether the domain trained an expert that takes part.")
    num_tokens: int


class InferenceModeAverages(Answer):
    """Mean perplexities over the domains that trained an expert (`train`) and over the others (`novel`).

    None where a domain has no number: means of other domains must not be compared. Empty without a domain.
    """

    train: dict[InferenceMode, float | None]
    novel: dict[InferenceMode, float | None]


class InferenceModeComparison(Answer):
    """Every domain's perplexity under each inference mode."""

    experts: list[str]
    domains: list[InferenceModeDomain]
    averages: InferenceModeAverages


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


def own_expert(perplexities: Sequence[float | None], homes: Sequence[str | None], domain: str) -> int | None:
    """The index of a domain's own expert: the best of those that it trained; None if none of these is scored.

    `perplexities` are those of the experts on this domain, `homes` the domains that trained the experts.
    """
    pairs = enumerate(zip(perplexities, homes, strict=True))
    scored = [(value, index) for index, (value, home) in pairs if home == domain and value is not None]
    return min(scored)[1] if scored else None
