"""Score the experts of a mixture on held-out text, and measure the distances that its gate needs."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from engine.errors import MixtureError, ScoresError
from jobs.attempt.work import JobRun, Work
from jobs.kinds.shared.scoring import measure_missing, register_scores, score_missing
from workbench.analysis.perplexity_tables import is_scored, measure_for
from workbench.answers.cards import MixtureCard
from workbench.answers.posteriors import EvidenceCalibration
from workbench.errors import NotFoundError
from workbench.formatting.number_format import pluralize
from workbench.formatting.shell_command import shell_command, split_options
from workbench.kinds.analysis import Evaluate
from workbench.questions.calibration import calibrate_evidence
from workbench.registry.mixtures import get_mixture, save_calibration


def run(work: Work, spec: Evaluate) -> JobRun:
    """Writes one folder of scores per expert and domain, for those without scores or for all.

    With `calibrate` it also fits the evidence, while nobody waits: the scores are registered before, so that an attempt
    that ends in between leaves them, and the result is saved after it.
    """
    with work.reading() as session:
        measure = measure_for(session, spec.mixture, spec.split, spec.block_size, spec.max_tokens)
    scores = yield from score_missing(
        work, spec.mixture, spec.domains, spec.split, *measure, more_experts=spec.experts, again=spec.again
    )
    yield from measure_missing(work, spec.mixture, spec.domains, spec.split, *measure)

    def register(session: Session) -> dict[str, Any]:
        num_scored = register_scores(session, work, scores)
        sentence = _sentence(session, spec, measure[0], len(scores), num_scored)
        return {"mixture": spec.mixture, "scored": num_scored, "sentence": sentence}

    if not spec.calibrate:
        return register
    with work.transaction() as session:
        scored = register(session)
    with work.reading() as session:
        before, fitted = get_mixture(session, spec.mixture), _fit(session, work, spec.mixture)

    def save(session: Session) -> dict[str, Any]:
        calibration = _save(session, before, fitted)
        sentence = f"{scored['sentence']} {calibration}".strip()
        return {**scored, "calibration": calibration, "sentence": sentence}

    return save


def _sentence(session: Session, spec: Evaluate, block_size: int, num_missing: int, num_scored: int) -> str:
    """How many scores were made, or why none was and what to do."""
    if num_scored:
        return f"{pluralize(num_scored, 'pair')} of expert and domain scored."
    if num_missing:
        return "No score was kept: the experts or the domains were deleted meanwhile."
    if not is_scored(session, spec.mixture, spec.split, block_size):
        return "Nothing could be scored: the base has no chat template for the conversations of these domains."
    command = shell_command("evaluate", "show", spec.mixture, *split_options(spec.split))
    return (
        f"Nothing to score: every expert of “{spec.mixture}” has scores of this {spec.split} text already, in blocks "
        f"of {block_size} tokens. See them: {command}. "
        "With --again they are computed again."
    )


def _fit(session: Session, work: Work, mixture: str) -> EvidenceCalibration | str:
    """The calibration, or why there can be none: the scores are worth keeping in any case."""
    try:
        return calibrate_evidence(session, work.storage, mixture)
    except (MixtureError, ScoresError) as error:
        return error.problem


def _save(session: Session, before: MixtureCard, fitted: EvidenceCalibration | str) -> str:
    """Saves the calibration; returns what was saved, or why nothing was."""
    if isinstance(fitted, str):
        return fitted
    try:
        now = get_mixture(session, before.name)
    except NotFoundError as error:
        return error.problem
    if (now.gate, now.members) != (before.gate, before.members):
        return f"“{before.name}” was changed while it was calibrated, so nothing was saved."
    return save_calibration(session, fitted).notes
