"""Our own reading of the posterior: evidence fitted on dev text of the training domains alone. Not in the paper.

What is fitted and why is in `engine/analysis/calibration.py`. Each seed has a fit of its own, of the experts of the
training domains; mixtures with further or fewer experts keep the paper's readings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.mixing.evidence import EvidenceRule
from workbench.replications.scored import Loaded

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


def fit(texts: Mapping[str, Loaded | None], block_size: int) -> Fit | None:
    """The evidence that fits the dev text of the training domains, given in the order of their experts.

    None where less than two of them are scored.
    """
    from engine.analysis.calibration import DevText, calibrate_from_equal_priors

    dev_texts = []
    for place, (domain, text) in enumerate(texts.items()):
        if text is not None:
            num_blocks = text.logprobs_EX.shape[1] // block_size  # full ones, as for cached priors
            scores_EX, documents_N = text.logprobs_EX[:, : num_blocks * block_size], text.documents_N[:num_blocks]
            dev_texts.append(DevText(domain, scores_EX, block_size, documents_N, frozenset({place})))
    if len(dev_texts) < 2:
        return None
    return Fit(calibrate_from_equal_priors(dev_texts), tuple(text.domain for text in dev_texts))
