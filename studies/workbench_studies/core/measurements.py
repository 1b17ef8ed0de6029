"""What was measured of a replication, from stored scores. Nothing in this module reads the registry.

Shapes: E experts, X tokens, N blocks, T positions.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from engine.files import ArtifactRef
from engine.mixing.evidence import AnyEvidence, EvidenceRule
from engine.statistics.estimates import NUM_DRAWS, Estimate, Ints, Loss
from engine.text.split_names import HeldOutSplit
from workbench_studies.core.averages import Averages, Hits, Place, Row, Statistic, SystemChange, interval_columns
from workbench_studies.core.spec import Replicate, Size

if TYPE_CHECKING:
    from torch import Tensor

    from engine.analysis.calibration import Calibration
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

    def text_rows(self) -> list[Row]:
        """How much of each domain's text was scored, and of how many documents."""
        return [
            {
                "text": domain,
                "test tokens": max((int(loss.tokens_N.sum()) for loss in tests), default=None),
                "test documents": max((num_documents(loss.documents_N) for loss in tests), default=None),
                "blocks behind a cached prior": self.prior_blocks.get(domain),
            }
            for domain in self.subject.everywhere
            for tests in [[loss for (_, _, text), loss in self.losses.items() if text == domain]]
        ]

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


def num_documents(documents_N: Ints) -> int:
    return len(np.unique(documents_N))


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


# our own reading of the posterior: evidence fitted on dev text of the training domains only, not in the paper ---------


@dataclass(frozen=True)
class Fit:
    """The calibration of one seed, of one mixture's experts, and the domains whose dev text it read.

    What is fitted and why is in `engine/analysis/calibration.py`. Mixtures with further or fewer experts keep the
    paper's readings.
    """

    calibration: Calibration
    domains: tuple[str, ...]

    @property
    def rule(self) -> EvidenceRule:
        """What a mixture would be saved with: the paper's reading (`prefix`) where nothing surely gains."""
        return self.calibration.now if self.calibration.keeps else self.calibration.best


def best_expert(text: Loaded) -> int:
    """The expert that fits a text best."""
    return int(text.logprobs_EX.sum(1).argmax())


def fit(texts: Iterable[ScoredText], experts: Sequence[str], *, by_text: bool = False) -> Fit | None:
    """The evidence that fits the dev text of the training domains, each also without its own expert.

    That is the one at the domain's place, or `by_text`, where none was trained on that domain only, the one that fits
    its dev text best. None where less than two of them are scored. No other text is opened.
    """
    from engine.analysis.calibration import DevText, calibrate_from_equal_priors

    dev_texts = []
    for place, text in enumerate(texts):
        if (dev := text.load(experts, "dev")) is not None:
            block_size = text.size.block_size
            num_blocks = dev.logprobs_EX.shape[1] // block_size  # full ones, as for cached priors
            scores_EX, documents_N = dev.logprobs_EX[:, : num_blocks * block_size], dev.documents_N[:num_blocks]
            own = best_expert(dev) if by_text else place
            dev_texts.append(DevText(text.domain, scores_EX, block_size, documents_N, frozenset({own})))
    if len(dev_texts) < 2:
        return None
    return Fit(calibrate_from_equal_priors(dev_texts), tuple(text.domain for text in dev_texts))


def fit_row(seed: int, fit: Fit) -> Row:
    """The rule of a seed, and its cross-fitted gain on dev text: of all experts, and without each domain's own."""
    fitted, rule = fit.calibration, fit.rule
    left_out = fitted.by_view.get("left out")
    return {
        "seed": seed,
        "decay": rule.decay,
        "power": rule.power,
        "slow decay": rule.slow_decay if rule.slow_power else None,
        "slow power": rule.slow_power or None,
        "is kept": fitted.keeps,
        "dev domains": len(fit.domains),
        **interval_columns(fitted.gain, "gain, %"),
        "left out, %": left_out.value if left_out else None,
    }


def comparison(measured: Measurements, own: Hashable, other: Hashable, domains: Sequence[str]) -> Row:
    """Perplexities of two systems on the same text, their difference and which is less; empty where one is missing."""
    difference, change = measured.difference(own, other, domains), measured.change(own, other, domains)
    if not difference or not change:
        return {}
    return {
        "calibrated": measured.value(own, domains),
        "other": measured.value(other, domains),
        "difference": asdict(difference),
        "change": asdict(change),
        "side": side_of(difference, change),
    }


def side_of(*estimates: Estimate) -> str:
    """`less` or `more` perplexity if the intervals and every seed say so, in perplexity and in %, else `undecided`."""
    if all(max(estimate.high, *estimate.by_seed) < 0 for estimate in estimates):
        return "less"
    return "more" if all(min(estimate.low, *estimate.by_seed) > 0 for estimate in estimates) else "undecided"
