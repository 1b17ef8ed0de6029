"""Score the experts of a mixture on held-out text, and measure the distances that its gate needs."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from sqlalchemy.orm import Session

from engine.errors import MixtureError, ScoresError
from engine.events import Event
from jobs.attempt.work import Register, Work
from jobs.kinds.shared.distances import measure_missing
from jobs.kinds.shared.scoring import register_scores, score_missing
from workbench.analysis.calibration import calibrate_evidence
from workbench.analysis.perplexity_tables import measure_for
from workbench.kinds.analysis.evaluate import Evaluate
from workbench.registry.mixtures import save_calibration


def run(work: Work, spec: Evaluate) -> Generator[Event, None, Register]:
    """Writes one folder of scores per expert and domain, for those without scores or for all."""
    with work.reading() as session:
        measure = measure_for(session, spec.mixture, spec.split, spec.block_size, spec.max_tokens)
    scores = yield from score_missing(
        work, spec.mixture, spec.domains, spec.split, *measure, also=spec.experts, again=spec.again
    )
    yield from measure_missing(work, spec.mixture, spec.domains, spec.split, *measure)

    def register(session: Session) -> dict[str, Any]:
        result = {"mixture": spec.mixture, "scored": register_scores(session, work, scores)}
        return result | ({"calibration": _calibrate(session, work, spec.mixture)} if spec.calibrate else {})

    return register


def _calibrate(session: Session, work: Work, mixture: str) -> str:
    """What was saved, or why nothing can be: the scores are worth keeping in any case."""
    try:
        return save_calibration(session, calibrate_evidence(session, work.storage, mixture)).notes
    except (MixtureError, ScoresError) as error:
        return error.problem
