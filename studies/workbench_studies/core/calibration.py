"""Our own reading of the posterior: evidence fitted on dev text of the training domains only. Not in the paper.

What is fitted and why is in `engine/analysis/calibration.py`. Each seed has a fit of its own, of one mixture's experts;
mixtures with further or fewer experts keep the paper's readings.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from engine.mixing.evidence import EvidenceRule
from engine.statistics.estimates import Estimate
from workbench_studies.core.findings import Row, interval_columns
from workbench_studies.core.measurements import Loaded, Measurements, ScoredText

if TYPE_CHECKING:
    from engine.analysis.calibration import Calibration


@dataclass(frozen=True)
class Fit:
    """The calibration of one seed, and the domains whose dev text it read."""

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
