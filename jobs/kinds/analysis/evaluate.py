"""Score the experts of a mixture on held-out text, and measure the distances that its gate needs."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from sqlalchemy.orm import Session

from engine.events import Event
from jobs.attempt.work import Register, Work
from jobs.kinds.shared.distances import measure_missing
from jobs.kinds.shared.scoring import register_scores, score_missing
from workbench.analysis.perplexity_tables import measure_for
from workbench.kinds.analysis.evaluate import Evaluate


def run(work: Work, spec: Evaluate) -> Generator[Event, None, Register]:
    """Writes one folder of scores per expert and domain, for those without scores or for all."""
    with work.reading() as session:
        measure = measure_for(session, spec.mixture, spec.split, spec.block_size, spec.max_tokens)
    scores = yield from score_missing(
        work, spec.mixture, spec.domains, spec.split, *measure, also=spec.experts, again=spec.again
    )
    yield from measure_missing(work, spec.mixture, spec.domains, spec.split, *measure)

    def register(session: Session) -> dict[str, Any]:
        return {"mixture": spec.mixture, "scored": register_scores(session, work, scores)}

    return register
