"""Made-up replications whose answers are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from engine.analysis.calibration import Calibration
from engine.mixing.evidence import READINGS, EvidenceRule
from engine.statistics.estimates import Estimate, Floats, Loss
from workbench_studies.core.averages import Place
from workbench_studies.core.measurements import Fit
from workbench_studies.core.verdicts import Verdict
from workbench_studies.demix.claims import judge
from workbench_studies.demix.measurements import Belief, DemixMeasurements, Overlap
from workbench_studies.demix.names import PAPER, SIZES, Reading, ReplicateDemix

DOMAINS, NOVEL = ("law", "code", "sea", "kitchen"), ("tweets", "poems")


def evidence_of(
    losses: Mapping[Place, Loss],
    *,
    beliefs: Mapping[tuple[int, str], Belief] | None = None,
    overlap: Overlap | None = None,
    removed: Sequence[str] = (),
    seeds: int = 2,
    domains: Sequence[str] = DOMAINS,
    fits: Mapping[int, Fit] | None = None,
) -> DemixMeasurements:
    """A replication of size tiny that measured these."""
    texts = {"domains": list(domains), "novel": list(NOVEL), "removed": list(removed)}
    subject = ReplicateDemix(name="rep", seeds=seeds, budget=SIZES["tiny"], **texts)
    more = {"beliefs": dict(beliefs or {}), "fits": dict(fits or {}), "overlap": overlap}
    return DemixMeasurements(subject, dict(losses), num_draws=500, **more)


def belief_of(posterior_EN: Floats, num_documents: int | None = None) -> Belief:
    """A belief whose updating prior is the posterior itself; each block is a document unless set otherwise."""
    num_blocks = posterior_EN.shape[1]
    of_N = np.arange(num_blocks) * (num_documents or num_blocks) // num_blocks
    return Belief(tuple(DOMAINS[: len(posterior_EN)]), posterior_EN, posterior_EN, of_N)


def calibration(*, keeps: bool) -> Calibration:
    """A calibration that proposes a decay of 0.9 and a power of 0.3, by 5 % on dev text."""
    gain = Estimate(-5.0, -6.0, 0.5 if keeps else -4.0, ())
    return Calibration(
        now=READINGS["prefix"],
        best=EvidenceRule(0.9, 0.3),
        keeps=keeps,
        decays=(0.9,),
        powers=(0.3,),
        change_DP=[[-5.0]],
        gain=gain,
        by_view={"present": gain, "left out": Estimate(-9.0, -10.0, -8.0, ())},
    )


def verdicts_of(evidence: DemixMeasurements, reading: Reading = PAPER) -> dict[str, Verdict]:
    """The verdicts on the paper's claims by their ids."""
    return {one.claim.id: one for one in judge(evidence, reading)}
