"""The evidence of a mixture's posterior fitted on stored scores, of dev text of its training domains only.

A mixture is made with the evidence that it asks for; where dev text is scored, a calibrated one is proposed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import Field
from sqlalchemy.orm import Session

from engine.errors import MixtureError, ScoresError, first_of
from engine.loading.plan import GenerationPlan, gate_of
from engine.methods.registry import method_of
from engine.mixing.evidence import EvidenceRule, name_of_reading, rule_of
from engine.mixing.gates.posterior import EvidenceConfig
from workbench.analysis.scores import (
    describe_unscored,
    load_counted,
    load_distances,
    load_places,
    load_scores,
    scored_domains,
)
from workbench.answers.cards import MixtureCard
from workbench.answers.posteriors import Change, EvidenceCalibration
from workbench.formatting.shell_command import evaluate_command, shell_command
from workbench.questions.question import Question
from workbench.registry.database import reading, transaction
from workbench.registry.experts import domains_of, expert_with_id
from workbench.registry.mixtures import create_mixture, get_mixture, save_calibration
from workbench.requests.planning import plan
from workbench.schema.tables import Evaluation, Expert
from workbench.settings import Settings, get_settings
from workbench.specs.requests import MixtureRequest, MixtureSpec
from workbench.store.storage import Storage, get_storage

if TYPE_CHECKING:
    from engine.analysis.calibration import DevText
    from engine.mixing.base import Gate
    from engine.statistics.estimates import Estimate


def calibrate_evidence(session: Session, storage: Storage, mixture: MixtureRequest | str) -> EvidenceCalibration:
    """The decay and the power that fit best, and what they gain over the saved ones; nothing is saved.

    Raises MixtureError for a gate without evidence, ScoresError where less than two training domains have dev scores
    of every expert that takes part.
    """
    from engine.analysis.calibration import calibrate

    started = time.perf_counter()
    planned = plan(session, storage, mixture)
    mixture = planned.model
    if not isinstance(planned.gate, EvidenceConfig):
        raise MixtureError(
            f"The gate of “{mixture}” is “{planned.gate.kind}”, which does not use evidence.",
            f"Give it a posterior: {shell_command('mixture', 'gate', mixture, '--gate', 'posterior')}.",
        )
    homes, scored = _scores_by_domain(session, planned)
    trained = sorted(set().union(*homes.values()))
    own = {domain: frozenset(i for i, e in enumerate(planned.experts) if domain in homes[e.id]) for domain in scored}
    texts = [_text(session, storage, planned, domain, rows, own[domain]) for domain, rows in scored.items()]
    now = rule_of(planned.gate.evidence)
    result = calibrate(texts, lambda rule, rows: _gate(planned, rule, rows), now)
    left_out = result.by_view.get("left out")

    def change(estimate: Estimate) -> Change:
        low, high = (None, None) if result.too_short else (estimate.low, estimate.high)
        return Change(value=estimate.value, low=low, high=high)

    return EvidenceCalibration(
        mixture=mixture,
        experts=[expert.name for expert in planned.experts],
        domains=list(scored),
        missing=[domain for domain in trained if domain not in scored],
        now=now,
        best=result.best,
        keeps=result.keeps,
        decays=list(result.decays),
        powers=list(result.powers),
        change=result.change_DP,
        gain=change(result.gain),
        gain_present=change(result.by_view["present"]),
        gain_left_out=left_out and change(left_out),
        too_short=list(result.too_short),
        seconds=time.perf_counter() - started,
    )


class CalibrationRequest(Question[EvidenceCalibration]):
    """The decay and the power of evidence that fit dev text of the training domains best, from stored scores.

    Nothing is saved; novel and test text are not read.
    """

    path = "calibration"
    operation = "calibrate_evidence"

    mixture: str = Field(description="Name of a mixture with a posterior.")

    def answer(self, session: Session, storage: Storage) -> EvidenceCalibration:
        return calibrate_evidence(session, storage, self.mixture)


QUESTION = CalibrationRequest


def missing_scores(session: Session, storage: Storage, mixture: str) -> str:
    """Why the evidence of a mixture cannot be fitted yet: too little dev text is scored. Empty where it can."""
    try:
        _scores_by_domain(session, plan(session, storage, mixture))
    except ScoresError as error:
        return error.problem
    return ""


def _scores_by_domain(
    session: Session, planned: GenerationPlan
) -> tuple[dict[str, set[str]], dict[str, Sequence[Evaluation]]]:
    """The domains that trained each expert, by its id, and the dev scores of those domains."""
    rows = [expert_with_id(session, expert.id) for expert in planned.experts]
    homes = {row.id: set(domains_of(row)) for row in rows}
    trained = set().union(*homes.values())
    scored: dict[str, Sequence[Evaluation]] = {
        domain: rows for domain, rows in scored_domains(session, planned, "dev").items() if domain in trained
    }
    if len(trained) < 2 and (unknown := [row for row in rows if not homes[row.id]]):
        raise _no_domains(unknown)
    if len(scored) < 2 and len(trained) > 1:
        few = "None" if not scored else f"Only {len(scored)}"
        raise ScoresError(
            f"{few} of the {len(trained)} domains that trained “{planned.model}” have dev text that is "
            "scored under every expert that takes part; calibrating needs two."
            f"{describe_unscored(session, planned.names, trained, 'dev')}",
            f"Score it: {evaluate_command(planned.model, 'dev', '--calibrate')}.",
        )
    return homes, scored


def _no_domains(experts: Sequence[Expert]) -> ScoresError:
    """The error for experts without a domain: seed models as they are, or imported ones."""
    imported = [f"“{row.name}”" for row in experts if not method_of(row.method).is_seed]
    need = "Calibrating needs dev text of two domains that trained experts of the mixture."
    if imported:
        return ScoresError(
            f"The registry knows no domain that trained {first_of(imported)}. {need}",
            "Import what they were trained on (workbench corpus add), then import them again with --domains.",
        )
    seeds = first_of([f"“{row.name}”" for row in experts])
    return ScoresError(
        f"No domain trained {seeds}: a seed model as it is. {need}", "Add experts that were trained on two domains."
    )


def _text(
    session: Session,
    storage: Storage,
    planned: GenerationPlan,
    domain: str,
    evaluations: Sequence[Evaluation],
    own_experts: frozenset[int],
) -> DevText:
    from engine.analysis.calibration import DevText

    scores_EX, block_size = load_scores(storage, evaluations)
    return DevText(
        domain,
        scores_EX,
        block_size,
        load_places(storage, evaluations[0])[1],
        own_experts,
        None if planned.route is None else load_distances(session, storage, planned, evaluations[0]),
        load_counted(storage, evaluations[0]),
    )


def _gate(planned: GenerationPlan, rule: EvidenceRule, rows: Sequence[int]) -> Gate:
    assert isinstance(planned.gate, EvidenceConfig)
    gate = replace(planned.gate, evidence=name_of_reading(rule))
    return gate_of(replace(planned.of_experts(rows), gate=gate))


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
    if calibrate:
        with transaction(settings) as session:
            save_calibration(session, proposal)
            card = get_mixture(session, card.name)
    return NewMixture(**dict(card), proposal=proposal, accepted=bool(calibrate) and not proposal.keeps)


def names_evidence(gate: Mapping[str, Any] | None) -> bool:
    """Whether a gate, as it was given, names its evidence."""
    return bool(gate) and any(name.startswith(EVIDENCE) for name in gate or ())


def can_be_calibrated(card: MixtureCard) -> bool:
    """Whether several experts take part, under a gate that looks at evidence."""
    return len([member for member in card.members if member.takes_part]) > 1 and EVIDENCE in card.gate
