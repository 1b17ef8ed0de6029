"""A mixture is made with the evidence that it asks for; where dev text is scored, a calibrated one is proposed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from engine.errors import MixtureError, ScoresError
from workbench.answers.cards import MixtureCard
from workbench.answers.posteriors import EvidenceCalibration
from workbench.questions.calibration import calibrate_evidence
from workbench.registry.database import reading, transaction
from workbench.registry.mixtures import create_mixture, get_mixture, save_calibration
from workbench.settings import Settings, get_settings
from workbench.specs.requests import MixtureSpec
from workbench.store.storage import get_storage

EVIDENCE = "evidence"


class NewMixture(MixtureCard):
    """A mixture that was made, with the evidence that is proposed for it."""

    proposal: EvidenceCalibration | None = Field(
        None, description="The evidence fitted on dev text of its training domains, and what it gains."
    )
    accepted: bool = Field(False, description="Whether the mixture has the proposed evidence already.")
    no_proposal: str = Field("", description="Why evidence could not be fitted; empty where it was, or need not be.")
    next_step: str = Field("", description="The command that makes the missing dev scores and calibrates.")


def make_mixture(
    spec: MixtureSpec, *, calibrate: bool | None = None, has_evidence: bool = False, settings: Settings | None = None
) -> NewMixture:
    """Creates a mixture and fits its evidence on stored dev scores.

    `calibrate`: None proposes, True accepts the proposal if it gains, False fits nothing. With `has_evidence`, evidence
    was asked for in so many words, and stays.
    """
    settings = settings or get_settings()
    with transaction(settings) as session:
        card = create_mixture(session, spec)
    if calibrate is False or has_evidence or not can_be_calibrated(card):
        return NewMixture(**dict(card))
    try:
        with reading(settings) as session:
            proposal = calibrate_evidence(session, get_storage(settings), card.name)
    except (MixtureError, ScoresError) as error:
        return NewMixture(**dict(card), no_proposal=error.problem, next_step=error.next_step)
    return _proposed(card, proposal, bool(calibrate), settings)


def names_evidence(gate: Mapping[str, Any] | None) -> bool:
    """Whether a gate, as it was given, names its evidence."""
    return bool(gate) and any(name.startswith(EVIDENCE) for name in gate or ())


def can_be_calibrated(card: MixtureCard) -> bool:
    """Whether several experts take part, under a gate that looks at evidence."""
    return len([one for one in card.members if one.active and one.enabled]) > 1 and EVIDENCE in card.gate


def _proposed(card: MixtureCard, proposal: EvidenceCalibration, accept: bool, settings: Settings) -> NewMixture:
    if accept:
        with transaction(settings) as session:
            save_calibration(session, proposal)
            card = get_mixture(session, card.name)
    return NewMixture(**dict(card), proposal=proposal, accepted=accept and not proposal.keeps)
